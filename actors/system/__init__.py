"""What an actor is and what carries it: runtime, supervisor, bus, runner, and the embedded broker.

run(main)                       trio as a guest on asyncio/uvloop                runtime.py
  become(directory)             nats-server, in place of this process            broker.py, broker_health.py
  Bus                           publish, fetch, ack in batches                   bus.py, pull.py, connection.py
  Supervisor.add(name, task)    restarts, stalls, drain, signals, sd_notify      supervisor.py, lifecycle.py, notify.py
    drive(actor, ...)           fetch -> handle -> commit -> publish -> ack      runner.py, outbox.py, actor.py
"""
