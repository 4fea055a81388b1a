"""The shared vocabulary: everything that travels between processes or is kept, as versioned msgspec Structs."""

from actors.messages.agents import agent_of
from actors.messages.base import (
    SCHEMA,
    Message,
    derived_id,
    floats_array,
    ids_array,
    new_id,
    pack_array,
    steps_array,
)
from actors.messages.codec import AnyMessage, decode, decode_batch, encode, encode_batch
from actors.messages.errors import MalformedMessage, MessageError, UnsupportedSchema
from actors.messages.experience import Experience, ExperienceKind, ExperienceState, Opinion, Task
from actors.messages.lineage import Lineage
from actors.messages.manifest import MANIFEST, SIGNATURE, Manifest, bad_file
from actors.messages.policy import (
    Answer,
    BatchItem,
    BatchOrder,
    Candidate,
    Directive,
    FileDigest,
    Serving,
    ServingResult,
    Verdict,
)
from actors.messages.traffic import Exchange, Feedback, Hints, Sampling, VersionSpan
from actors.messages.trajectory import (
    Attributed,
    Attribution,
    Handoff,
    Label,
    Step,
    StepLabel,
    TokenRow,
    ToolCall,
    Trajectory,
)

__all__ = [
    "MANIFEST",
    "SCHEMA",
    "SIGNATURE",
    "Answer",
    "AnyMessage",
    "Attributed",
    "Attribution",
    "BatchItem",
    "BatchOrder",
    "Candidate",
    "Directive",
    "Exchange",
    "Experience",
    "ExperienceKind",
    "ExperienceState",
    "Feedback",
    "FileDigest",
    "Handoff",
    "Hints",
    "Label",
    "Lineage",
    "MalformedMessage",
    "Manifest",
    "Message",
    "MessageError",
    "Opinion",
    "Sampling",
    "Serving",
    "ServingResult",
    "Step",
    "StepLabel",
    "Task",
    "TokenRow",
    "ToolCall",
    "Trajectory",
    "UnsupportedSchema",
    "Verdict",
    "VersionSpan",
    "agent_of",
    "bad_file",
    "decode",
    "decode_batch",
    "derived_id",
    "encode",
    "encode_batch",
    "floats_array",
    "ids_array",
    "new_id",
    "pack_array",
    "steps_array",
]
