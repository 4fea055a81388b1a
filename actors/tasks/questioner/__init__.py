"""The questioner: finds out what an environment is by trying, and sets tasks whose reference was really executed.

    probe -> model of the environment -> traces -> shortest references -> programs -> drafts -> filters -> tasks

A `Program` is a reference with its data flow, to be executed again in other worlds. `generating` turns the crank from a
state that is one JSON document. Nothing here knows an environment by name, and nothing is believed that can be
executed.
"""
