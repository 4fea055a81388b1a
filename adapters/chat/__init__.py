"""Chat: what judges, extractors and rewriters share when they ask a language model.

    settings, keys -> endpoint -> reading
                      quoting: what others wrote stays data on its way there

None of it knows what is asked for. An endpoint that is away is `ModelUnavailable`.
"""
