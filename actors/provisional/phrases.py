"""What people say when it worked, when it did not, and when they meant something else: phrases of thirteen languages.

Phrases, not a model: each is a signal's whole knowledge of a language, and how right it is of an agent's users is
measured (`signal_records`), never assumed. What stands in no list is silence, and silence is no evidence here.
"""

import re
import unicodedata

HEAD, TAIL = 600, 200
"""Characters of a turn that are read, at its beginning and end: a reaction stands there, and a megabyte between them is
pasted material."""

_THANKS = r"""
thanks|thank\ you|thank\ u|thx|\bty\b|cheers|much\ appreciated|appreciate\ it|perfect|great|awesome|excellent
|wonderful
|brilliant|lovely|(?:works|working|solved|fixed|sorted)(?:\ now|\ again)?|it\ worked|that\ helped|very\ helpful
|all\ good
|exactly\ what\ i|you(?:'re|\ are)\ the\ best|well\ done|good\ job|nice\ work
|danke|vielen\ dank|super|klasse|perfekt|hat\ geklappt|funktioniert\ jetzt|passt\ so
|merci|parfait|super\ bien|ça\ marche|ca\ marche|génial
|gracias|perfecto|genial|funciona\ ahora|ya\ funciona|estupendo
|grazie|perfetto|ottimo|funziona\ adesso|funziona\ ora
|obrigad[oa]|valeu|perfeito|ótimo|funcionou
|dank\ je|dank\ u|bedankt|top|het\ werkt
|dziękuję|dzieki|dzięki|świetnie|działa\ już
|teşekkür|sağ\ ?ol|harika|mükemmel
|спасибо|отлично|супер|заработало|всё\ работает
|شكرا|ممتاز
"""
_NOT_DONE = r"""
nothing\ (?:happened|changed|works|worked|came)|not\ (?:done|it\b|right|correct|working|fixed|solved|true|what
|helpful)
|(?:did|does|do|is|was|has|have|had|can|could|are)(?:n['’]?t|\ not)\ (?:\w+\ )?(?:do|done|work|works|working
|help|happen|arrive|come|fix|solve|change|changed|get|got|received?|see|it|right|correct|what)
|still\ (?:not|no|nothing|waiting|broken|locked|wrong|the\ same|have|has|doesn|isn|can|does|getting|says|here|there)
|wrong|incorrect|useless|rubbish|terrible|awful|broken|failed\ again|same\ (?:problem|error|issue)|no\ change
|not\ what\ i|never\ (?:came|arrived|happened)|you\ (?:said|told\ me|promised)|that(?:'s|\ is)\ (?:false|a\ lie)
|how\ (?:come|is\ it)\ .{0,20}(?:still|not)|real\ (?:person|human)|talk\ to\ a\ (?:human|person)|(?:your|a)\ manager
|geht\ (?:immer\ noch\ )?nicht|funktioniert\ nicht|stimmt\ nicht|falsch|nicht\ (?:richtig|erledigt|geklappt)
|immer\ noch|nichts\ passiert
|ne\ (?:marche|fonctionne)\ pas|c['’]est\ faux|toujours\ pas|rien\ ne\ se\ passe|pas\ (?:bon|correct)|incorrect
|no\ funciona|está\ mal|incorrecto|sigue\ sin|todavía\ no|no\ pasó\ nada|no\ es\ correcto|equivocado
|non\ funziona|sbagliato|ancora\ non|non\ è\ (?:giusto|corretto)|niente\ è\ successo
|não\ (?:funciona|funcionou|está)|errado|ainda\ não|nada\ aconteceu
|werkt\ niet|klopt\ niet|nog\ steeds|fout|niets\ gebeurd
|nie\ działa|źle|nadal\ nie|to\ nieprawda
|çalışmıyor|yanlış|hala|olmadı
|не\ работает|неправильно|неверно|всё\ ещё|ничего\ не
|لا\ يعمل|خطأ|ليس\ صحيح
"""
_MEANT = r"""
i\ meant|what\ i\ meant|i\ said|i\ asked\ (?:for|you)|actually|rather\ than|(?:,|\.|^)\ ?instead|not\ that\ one
|the\ other\ one|should\ (?:be|have\ been)
|you\ (?:misunderstood|forgot|missed|mixed)|try\ again|do\ it\ again|once\ more|please\ (?:redo|correct|fix)
|undo|change\ it\ back
|ich\ meinte|eigentlich|nochmal|sondern|je\ voulais\ dire|en\ fait|plutôt|quise\ decir|en\ realidad|mejor\ dicho
|intendevo|in\ realtà|eu\ quis\ dizer|na\ verdade|ik\ bedoelde|eigenlijk|miałem\ na\ myśli|chodziło\ mi
|demek\ istedim|aslında|я\ имел[а]?\ в\ виду|на\ самом\ деле|قصدت
"""
_NO = r"^\W*(?:no|nope|nah|nein|non|não|nee|nie|hayır|нет|لا)\b"
_NO_THANKS = r"""
^\W*(?:no|nope|nein|non|não|nee|nie|нет)\W{1,3}(?:that(?:'s|\ is)\ (?:all|it|fine)|thank|thx|danke|merci|gracias
|grazie|obrigad|bedankt|dziękuję|спасибо|all\ good)
"""


def _compiled(words: str, unspaced: str) -> re.Pattern[str]:
    """Words between word boundaries, or pieces of scripts that put no blanks between words."""
    return re.compile(rf"(?<!\w)(?:{words.strip()})(?!\w)|{unspaced}", re.VERBOSE | re.MULTILINE)


THANKS = _compiled(_THANKS, "谢谢|多谢|太好了|完美|ありがとう|助かりました|完璧|감사합니다|고마워|고맙습니다|완벽")
NOT_DONE = _compiled(
    _NOT_DONE, "不对|错了|没有用|没用|还是不|还没|違います|間違|動かない|まだ|틀렸|안\\ 돼|아직도|작동하지"
)
MEANT = _compiled(_MEANT, "我的意思是|其实|不是这个|重新|そうではなく|つまり|もう一度|제\\ 말은|사실은|다시")
_NO_WORD = re.compile(_NO, re.VERBOSE)
_NO_WISH = re.compile(_NO_THANKS, re.VERBOSE)


def cut(text: str) -> str:
    """The two ends of `text`, in lower case and one form of each letter."""
    ends = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"
    return unicodedata.normalize("NFKC", ends)[: 2 * (HEAD + TAIL)].lower().replace("’", "'").strip()


def reaction(turn: str) -> str:
    """What a user's turn says of the answer before: "thanks", "complaint", "correction", or nothing.

    A complaint wins over thanks: "thanks, but it still does not work". A bare "no" at the beginning is one too, but for
    "no, thanks".

    Args:
        turn: as `cut` gives it.
    """
    if not turn:
        return ""
    if _NO_WISH.search(turn):
        return "thanks"
    if NOT_DONE.search(turn):
        return "complaint"
    if MEANT.search(turn):
        return "correction"
    if _NO_WORD.search(turn):
        return "complaint"
    return "thanks" if THANKS.search(turn) else ""
