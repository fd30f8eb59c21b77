"""Functions with generated client and executor code: one entry in the specification, one simulator function."""

from collections.abc import Callable

Simulate = Callable[..., str]


def test_flags_of_an_executable_graph(simulate: Simulate) -> None:
    simulate(
        """
        context()
        graph = new(cuda.cuGraphCreate, 0)
        for flags in (0, 1, 8):
            executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(flags))
            got = c_uint64(77)
            ok(cuda.cuGraphExecGetFlags(executable, byref(got)))
            assert got.value == flags
        assert cuda.cuGraphExecGetFlags(executable, None) == 1
        assert cuda.cuGraphExecGetFlags(graph, byref(got)) == 1
        ok(cuda.cuGraphExecDestroy(executable))
        got.value = 77
        assert cuda.cuGraphExecGetFlags(executable, byref(got)) == 1 and got.value == 77
        """
    )


def test_attributes_of_one_stream_for_another(simulate: Simulate) -> None:
    simulate(
        """
        context()
        a, b = new(cuda.cuStreamCreate, 0), new(cuda.cuStreamCreate, 1)
        ok(cuda.cuStreamCopyAttributes(a, b))
        ok(cuda.cuStreamCopyAttributes(a, None))
        ok(cuda.cuStreamDestroy_v2(b))
        assert cuda.cuStreamCopyAttributes(a, b) == 400
        assert cuda.cuStreamCopyAttributes(c_void_p(12345), a) == 400
        """
    )
