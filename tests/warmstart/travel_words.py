"""Names that the travel desk's tools may get, in demonstrations and in drifts."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


VERBS = _words(
    """
    reserve issue take grab make send get pick secure assign create place open start commit submit apply process handle
    post put push pull run fix lock claim sell pay order file log mark note scan test probe verify approve audit inspect
    review ask allow permit grant free clear undo stop close end remove erase delete revoke annul return refund reject
    add bind build call carry cast catch change charge choose collect compute copy cover craft cut deal decide define
    deliver deny deploy draw drive edit emit enter exec exit export fetch fill filter flag fly form forward give go
    grasp guard guide halt hand help hide import index inform init insert join jump keep kick kill know launch lead
    learn leave lend lift link load look loop lose map match meet merge mint move name need nest offer pack park parse
    pass patch paste pause peek plan play plug point poll pop print prove pulse query quit raise rank reach read rent
    repair reply reset ride ring rise roll route row sail save say seal seek seize serve set shift ship show shut sign
    sink sit skip slice sort spend spin split stack stamp stay step store strip study sum swap sweep sync tag talk teach
    tell think throw tie touch trace track trade train treat trim try turn type unite use view visit vote wait walk want
    warn wash watch win wipe wish work wrap write yield zoom
    """
)
"""Tool names that hinted demonstrations draw from. There must be many: with 60 the lesson "the name is what the hint
says" was not learnt at all, with these it was."""
SUFFIXES = _words(
    "_seat _trip _ticket _fare _item _slot _entry _deal _fly _now _it _all _one _x _new _req _job _order _rule _rate "
    "_v _api"
)
"""A verb and a suffix make a tool name of two tokens."""

HELD_OUT = _words("buy drop hold void confirm")
"""Names for drifts. The warm start meets them in its copy drill only: no demonstration calls them, no hint and no tool
list of a demonstration mentions them."""
HELD_OUT_PAIRS = ("order_seat", "void_ticket", "hold_fare", "confirm_rule", "ask_rate")
"""The same for names of two tokens. Their parts occur in other names, the pairs never."""
