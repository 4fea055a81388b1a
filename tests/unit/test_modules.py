"""No module imports itself by way of others, wherever it stands."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_circle_among_modules():
    graph = grimp.build_graph("actors", "adapters", "daemon", "learner", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
