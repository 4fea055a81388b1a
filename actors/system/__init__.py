"""What an actor is and what carries it: runtime, supervisor, bus, ledger, runner, and the embedded broker.

run(main)                       trio guest on asyncio/uvloop, or asyncio         runtime.py
  Broker                        nats-server as a child                           broker.py
  NatsBus / StubBus             publish, fetch, ack in batches                   bus.py, nats_bus.py, stub_bus.py
  Supervisor.add(name, task)    restarts, stalls, drain, signals, sd_notify      supervisor.py, life.py, notify.py
    run_actor(actor, ...)       fetch -> handle -> commit -> publish -> ack      runner.py, line.py, actor.py
      Ledger                    processed marks, outbox, failures, dead letters  ledger.py
"""
