"""What an actor is and what carries it: runtime, supervisor, bus, ledger, runner, and the embedded broker.

run(main)                       trio guest on asyncio/uvloop, or asyncio         runtime.py
  become(directory)             nats-server, in place of this process            broker.py, broker_health.py
  Bus                           publish, fetch, ack in batches                   bus.py, pull.py, connection.py
  Supervisor.add(name, task)    restarts, stalls, drain, signals, sd_notify      supervisor.py, lifecycle.py, notify.py
    run_actor(actor, ...)       fetch -> handle -> commit -> publish -> ack      runner.py, outbox.py, actor.py
      Ledger                    processed marks, outbox, failures, dead letters  ledger.py
"""
