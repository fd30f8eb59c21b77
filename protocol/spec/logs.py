"""The driver's log of errors: the host's explanations, kept in the client."""

from protocol.gen.dsl import NOTHING, U32, fn, ptr, val

FLAGS = val("flags", U32)
ITERATOR = ptr("iterator", "unsigned *")

fn(
    "cuLogsRegisterCallback",
    [ptr("callbackFunc", "CUlogsCallback"), ptr("userData", "void *"), ptr("callback_out", "void **")],
    need=NOTHING,
    doc="Have a function called with each message.",
)
fn("cuLogsUnregisterCallback", [ptr("callback", "void *")], need=NOTHING, doc="Undo that.")
fn("cuLogsCurrent", [ptr("iterator_out", "unsigned *"), FLAGS], need=NOTHING, doc="The end of the log, for later.")
fn(
    "cuLogsDumpToFile",
    [ITERATOR, ptr("pathToFile", "const char *"), FLAGS],
    need=NOTHING,
    doc="Messages from a place on, or all, as a file.",
)
fn(
    "cuLogsDumpToMemory",
    [ITERATOR, ptr("buffer", "char *"), ptr("size", "size_t *"), FLAGS],
    need=NOTHING,
    doc="The same as text: the newest that fit.",
)
