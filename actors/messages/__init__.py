"""The shared vocabulary: everything that travels between processes or is kept, as versioned msgspec Structs."""
# All of it is for others.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from actors.messages.agents import agent_of, called, concerns
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
from actors.messages.codec import (
    AnyMessage,
    MalformedMessage,
    MessageError,
    UnsupportedSchema,
    decode,
    decode_batch,
    encode,
    encode_batch,
)
from actors.messages.experience import Experience, ExperienceKind, ExperienceState, Task
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
from actors.messages.rows import Sampled, continues, extended, of_version
from actors.messages.sampling import GRAMMARS, Processing, Sampling
from actors.messages.traffic import (
    Exchange,
    Feedback,
    Hints,
    VersionSpan,
    token_versions,
    version_number,
)
from actors.messages.trajectory import (
    Attributed,
    Attribution,
    Handoff,
    Label,
    OutcomeChanged,
    Step,
    StepLabel,
    TokenRow,
    ToolCall,
    Trajectory,
)
