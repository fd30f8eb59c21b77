"""User objects: destroyed when neither the program nor a graph refers to them, as torch.cuda.graph relies on."""

from collections.abc import Callable

from tests.shim.graph_program import WORK

Simulate = Callable[..., str]

OBJECTS = (
    WORK
    + """
gone = []
@HOST_FUNCTION
def destroy(data): gone.append(data)
def user_object(data, refs=1): return new(cuda.cuUserObjectCreate, c_void_p(data), destroy, c_uint(refs), c_uint(1))
retain, release = cuda.cuGraphRetainUserObject, cuda.cuGraphReleaseUserObject
"""
)


def test_what_the_program_holds_alone(simulate: Simulate) -> None:
    simulate(
        OBJECTS
        + """
object = user_object(1, 2)
ok(cuda.cuUserObjectRetain(object, 3))
ok(cuda.cuUserObjectRelease(object, 4))
assert cuda.cuUserObjectRelease(object, 2) == 1 and not gone
ok(cuda.cuUserObjectRelease(object, 1))
assert gone == [1]
assert cuda.cuUserObjectRelease(object, 1) == 1, "there is none any more"
"""
    )


def test_graphs_and_what_is_made_from_them_keep_it(simulate: Simulate) -> None:
    simulate(
        OBJECTS
        + """
s, object = stream(), user_object(7)
graph = new(cuda.cuGraphCreate, 0)
add(cuda.cuGraphAddHostNode, graph, [], byref(host_node(says("ran"), 0)))
ok(retain(graph, object, 1, 1))  # the program's own moves
assert cuda.cuUserObjectRelease(object, 1) == 1, "the program has none left"
clone = new(cuda.cuGraphClone, graph)
e = executable(clone)
ok(cuda.cuGraphDestroy(graph))
ok(cuda.cuGraphDestroy(clone))
launch_graph(e, s)
sync(s)
assert not gone and said
ok(cuda.cuGraphExecDestroy(e))
sync(s)
deadline = time.monotonic() + 200  # a thread of the driver's drops what launches needed
while not gone and time.monotonic() < deadline: time.sleep(0.01)
assert gone == [7]
"""
    )


def test_a_graph_that_is_captured_keeps_it(simulate: Simulate) -> None:
    simulate(
        OBJECTS
        + """
s, object = stream(), user_object(3)
begin(s)
status, id, growing = c_int(), c_uint64(), c_void_p()
ok(cuda.cuStreamGetCaptureInfo_v2(s, byref(status), byref(id), byref(growing), None, None))
ok(retain(growing, object, 2, 0))
ok(cuda.cuUserObjectRelease(object, 1))
graph = end(s)
ok(release(graph, object, 1))
assert not gone
assert release(graph, object, 2) == 1, "it holds one"
ok(cuda.cuGraphDestroy(graph))
assert gone == [3]
"""
    )


def test_bad_arguments(simulate: Simulate) -> None:
    simulate(
        OBJECTS
        + """
made, object = c_void_p(5), user_object(1)
graph = new(cuda.cuGraphCreate, 0)
for refs, flags in ((0, 1), (2**31, 1), (1, 0), (1, 3)):
    assert cuda.cuUserObjectCreate(byref(made), None, destroy, c_uint(refs), c_uint(flags)) == 1
assert cuda.cuUserObjectCreate(byref(made), None, None, 1, 1) == 1
assert made.value == 5
for call in (lambda: retain(graph, None, 1, 0), lambda: retain(None, object, 1, 0), lambda: retain(graph, object, 0, 0),
             lambda: retain(graph, object, 1, 2), lambda: retain(graph, object, 2, 1), lambda: retain(graph, s, 1, 0),
             lambda: release(graph, object, 1), lambda: cuda.cuUserObjectRetain(object, 0)):
    assert call() == 1
ok(cuda.cuGraphDestroy(graph))
ok(cuda.cuUserObjectRelease(object, 1))
assert gone == [1]
""".replace("made, object", "s, made, object", 1).replace("c_void_p(5), user", "stream(), c_void_p(5), user", 1)
    )
