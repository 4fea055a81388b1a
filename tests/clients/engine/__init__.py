"""A scripted LLM server with vLLM's wire format: what the clients under test talk to."""
