"""The shared vocabulary: everything that travels between processes or is kept, as versioned msgspec Structs."""

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
from actors.messages.experience import Experience, Task
from actors.messages.manifest import MANIFEST, SIGNATURE, Manifest, bad_file
from actors.messages.policy import (
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
    "AnyMessage",
    "Attributed",
    "Attribution",
    "BatchItem",
    "BatchOrder",
    "Candidate",
    "Directive",
    "Exchange",
    "Experience",
    "Feedback",
    "FileDigest",
    "Hints",
    "Label",
    "MalformedMessage",
    "Manifest",
    "Message",
    "MessageError",
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
