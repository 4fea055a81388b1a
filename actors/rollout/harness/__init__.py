"""What an episode in a sandbox is played with: `session` (requests and steps, recorded), `rows` (turns to token rows),
`reading` (an engine's answer in our terms), `agents` and `endpoint` (a user's own loop in place of ours), `errors`.

`actors.rollout.episode_runner.play` brings them together.
"""
