import pytest

from actors.ports.errors import LiveApiRefused, LiveApiUnavailable
from adapters.live.callables import CallablesApi
from adapters.live.toolset import LiveTools

pytestmark = pytest.mark.anyio


class Broken(CallablesApi):
    async def tools(self):
        raise LiveApiUnavailable("it is down")


def shop(name: str, **options) -> CallablesApi:
    return CallablesApi(name, {"find": lambda: f"{name} found it", "buy": lambda: "bought"}, **options)


async def test_tools_of_several_apis_are_told_apart_and_reach_their_own():
    tools = LiveTools(lambda: {"one": shop("one", reads=("find",)), "two": shop("two")})
    listed = await tools.tools()
    assert [tool.name for tool in listed] == ["one__find", "one__buy", "two__find", "two__buy"]
    assert (listed[0].title, listed[0].tags) == ("find", ("one",))
    assert (await tools.call("two__find", {})).text == "two found it"
    assert (tools.read_only("one__find"), tools.read_only("two__find"), tools.read_only("x")) == (True, False, False)


async def test_an_api_that_is_down_does_not_take_the_others_with_it():
    tools = LiveTools(lambda: {"down": Broken("down", {}), "one": shop("one")})
    assert [tool.name for tool in await tools.tools()] == ["one__find", "one__buy"]
    assert tools.missing == {"down": "it is down"}
    with pytest.raises(LiveApiRefused, match="down is missing: it is down"):
        await tools.call("down__find", {})


async def test_what_is_registered_later_is_found_and_what_is_gone_is_not_called():
    apis = {"one": shop("one")}
    tools = LiveTools(lambda: apis)
    await tools.tools()
    apis["two"] = shop("two")
    assert (await tools.call("two__find", {})).text == "two found it"
    del apis["one"]
    with pytest.raises(LiveApiRefused, match="one__find"):
        await tools.call("one__find", {})


async def test_long_names_are_shortened_and_found_again():
    long = CallablesApi("warehouse", {"operation_" * 6 + end: (lambda end=end: end) for end in ("a", "b")})
    tools = LiveTools(lambda: {"warehouse": long})
    names = [tool.name for tool in await tools.tools()]
    assert all(len(name) <= 64 for name in names)
    assert [(await tools.call(name, {})).text for name in names] == ["a", "b"]
