"""Detectors of secrets that their form gives away: keys of known vendors, private keys, JWTs, hashes of passwords,
bearers, passwords in URLs.

The patterns are our own. `detect-secrets` was measured at 3.3 ms per kilobyte here, reads source code line by line and
brings an HTTP client. No pattern has a repetition inside a repetition over the same characters, and each starts at a
boundary, so none is worse than linear but for small constants (a test holds that for all of redaction).
"""

import re

from adapters.redaction.detector import Clues, Detector, Spans, long_words, matches, says
from adapters.redaction.names import stands_for

_FORMS = (
    r"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?(?=[\w-]{0,200}\d)[\w-]{20,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}",
    r"gh[opsur]_[A-Za-z0-9]{36,}|github_pat_\w{40,}",
    r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent|oas)-[\w-]{20,}",
    r"xox[a-z]-[\w-]{10,}|xapp-\d-[\w-]{20,}|xwfp-[\w-]{20,}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",
    r"evk_[0-9a-f]{12}_[\w-]{40,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36,}|pypi-AgE[\w-]{40,}|rubygems_[0-9a-f]{40,}|dckr_pat_[\w-]{20,}",
    r"SG\.[\w-]{16,32}\.[\w-]{32,}|SK[0-9a-f]{32}(?![0-9A-Za-z])|key-[0-9a-f]{32}(?![0-9A-Za-z])",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}|sq0[a-z]{3}-[\w-]{22,}",
    r"gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|nvapi-[\w-]{40,}",
    r"tvly-[\w-]{20,}|lsv2_[a-z]{2}_\w{32,}|pcsk_\w{40,}|lin_api_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}|figd_[\w-]{36,}",
    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}|sntry[su]_[\w.-]{32,}|NRAK-[A-Z0-9]{27}|gls?c?a?_[\w-]{32,}",
    r"hv[bs]\.[\w-]{24,}|dp\.(?:pt|st|ct|sa)\.[\w.-]{40,}|ATATT3[\w-]{40,}|AGE-SECRET-KEY-1[A-Z0-9]{58}",
    r"sbp_[0-9a-f]{40}|pscale_(?:tkn|pw)_[\w-]{32,}|EAA[A-Za-z0-9]{60,}|LTAI[A-Za-z0-9]{16,}",
    r"sk\.eyJ[\w-]{40,}|sl\.[A-Za-z][\w-]{60,}|HRKU-[\w-]{40,}|bk[a-z]{1,2}_[0-9a-f]{40}",
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)",
    r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
    # A vendor that is not in this list: words, `_`, and a long mix of cases and digits. Ids are shorter or hex.
    r"[a-z]{2,10}_(?:[a-z]{2,8}_)?(?=[A-Za-z0-9]{0,80}\d)(?=[a-z0-9]{0,80}[A-Z])(?=[A-Z0-9]{0,80}[a-z])[A-Za-z0-9]{32,}",
)
_API_KEY = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_FORMS) + ")", re.ASCII)
_SHORTEST = 16
_TELEGRAM = re.compile(r"(?<!\w)\d{8,10}:AA[\w-]{32,}", re.ASCII)
_HASH = re.compile(
    r"\$(?:\d[abxy]?|[yPHS]|apr1|sha\d{0,3}|md5|argon2\w{1,2}|scrypt|pbkdf2[\w-]*)\$[\w./$=,+-]{20,}"
    r"|\{(?:S?(?:SHA|MD5)\d{0,3}|CRYPT)\}[\w+/=$.]{20,}|(?:pbkdf2_\w{3,8}|scrypt|argon2)\$[\w.-]{1,24}\$[\w.$/+=,-]{20,}"
)
"""A password's hash, as crypt(3) and its like write it: it can be guessed at."""
_WEBHOOK = re.compile(
    r"hooks\.zapier\.com/hooks/catch/([\w/]{8,})|hooks\.slack\.com/services/([\w/]{20,})|discord(?:app)?\.com/api/webhooks/([\w/-]{20,})",
    re.ASCII,
)

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: [0-9a-f]+")
_JWT = re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]{8,}(?:\.[\w-]*){1,4}", re.ASCII)
_BEARER = re.compile(
    r"(?i)(?<![a-z0-9])(?:bearer\s{1,4}|authorization['\"]?\s?[:=]\s{0,3}['\"]?(?:basic|token|api-?key)\s{1,4})"
    r"([A-Za-z0-9._~+/=-]{12,})"
)
_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@\"'<>\x00]{0,100}:([^\s/@\"'<>\x00]{1,200})@"
)


def _api_keys(text: str) -> Spans:
    for at, word in long_words(text, _SHORTEST):
        for match in _API_KEY.finditer(word):
            yield at + match.start(), at + match.end()


def _rare_keys(text: str) -> Spans:
    yield from matches(_TELEGRAM, text)
    yield from matches(_HASH, text)
    for match in _WEBHOOK.finditer(text):
        yield match.span(match.lastindex or 0)


def _private_keys(text: str) -> Spans:
    """From the first line to the last; to the end of the text if it was cut off."""
    at = 0
    while begin := _PEM.search(text, at):
        end = _PEM_END.search(text, begin.end())
        at = end.end() if end else len(text)
        yield begin.start(), at


def _jwts(text: str) -> Spans:
    for match in _JWT.finditer(text):
        yield match.start(), match.start() + len(match[0].rstrip("."))


def _bearers(text: str) -> Spans:
    yield from matches(_BEARER, text, 1, keep=lambda found: any(one.isdigit() or one == "=" for one in found))


def _url_passwords(text: str) -> Spans:
    return matches(_URL, text, 1, keep=lambda found: not stands_for(found))


def _may_be_rare(clues: Clues) -> bool:
    return ":AA" in clues.text or "$" in clues.text or "hooks." in clues.text or "/webhooks/" in clues.text


DETECTORS = (
    Detector("private_key", lambda clues: "PRIVATE KEY" in clues.text or "PuTTY" in clues.text, _private_keys),
    Detector("jwt", lambda clues: clues.long_run and "eyJ" in clues.text, _jwts),
    Detector("api_key", lambda clues: clues.long_run, _api_keys),
    Detector("api_key", _may_be_rare, _rare_keys),
    Detector("bearer", says(("bearer", "authorization")), _bearers),
    Detector("credentials", lambda clues: "://" in clues.text and "@" in clues.text, _url_passwords),
)
