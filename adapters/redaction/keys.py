"""Detectors of secrets that their form gives away: keys of known vendors, private keys, JWTs, hashes of passwords,
bearers, passwords in URLs.

The patterns are our own. `detect-secrets` was measured at 3.3 ms per kilobyte here, reads source code line by line and
brings an HTTP client. No pattern has a repetition inside a repetition over the same characters, and each starts at a
boundary, so none is worse than linear but for small constants (a test holds that for all of redaction).
"""

from adapters.redaction.detector import Words, form
from adapters.redaction.names import is_value

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
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)|xkeysib-[0-9a-f]{60,}-\w{12,}",
    r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}|(?:bot)?\d{8,10}:AA[\w-]{32,}",
    # A vendor that is not in this list: words, `_`, and a long mix of cases and digits. Ids are shorter or hex.
    r"[a-z]{2,10}_(?:[a-z]{2,8}_)?(?=[A-Za-z0-9]{0,80}\d)(?=[a-z0-9]{0,80}[A-Z])(?=[A-Z0-9]{0,80}[a-z])[A-Za-z0-9]{32,}",
)
_PEM = r"PRIVATE KEY(?: BLOCK)?-----"

DETECTORS = (
    # To the end of the text if it was cut off.
    form(
        "private_key", lambda clues: "PRIVATE KEY" in clues.text or "PuTTY" in clues.text,
        rf"(?s)(?:-----BEGIN [A-Z0-9 ]{{0,30}}{_PEM}|PuTTY-User-Key-File-\d)"
        rf".*?(?:-----END [A-Z0-9 ]{{0,30}}{_PEM}|Private-MAC: [0-9a-f]+|\Z)",
    ),
    form(
        "jwt", lambda clues: clues.long_run and "eyJ" in clues.text,
        r"(?a)(?<![A-Za-z0-9_-])eyJ[\w-]{8,}(?=\.)(?:\.[\w-]*){0,4}(?<!\.)",
    ),
    form("api_key", lambda clues: clues.long_run, rf"(?a)(?<![A-Za-z0-9])(?:{'|'.join(_FORMS)})", size=16),
    # A password's hash, as crypt(3) and its like write it: it can be guessed at.
    form(
        "api_key", lambda clues: "$" in clues.text,
        r"\$(?:\d[abxy]?|[yPHS]|apr1|sha\d{0,3}|md5|argon2\w{1,2}|scrypt|pbkdf2[\w-]*)\$[\w./$=,+-]{20,}"
        r"|(?:pbkdf2_\w{3,8}|scrypt|argon2)\$[\w.-]{1,24}\$[\w.$/+=,-]{20,}",
    ),
    form("api_key", lambda clues: "{" in clues.text, r"\{(?:S?(?:SHA|MD5)\d{0,3}|CRYPT)\}[\w+/=$.]{20,}"),
    form(
        "api_key", Words("hooks.", "/webhooks/"),
        r"(?a)(?:hooks\.zapier\.com/hooks/catch/|hooks\.slack\.com/services/(?=[\w/]{20})"
        r"|discord(?:app)?\.com/api/webhooks/(?=[\w/-]{20}))(?P<value>[\w/-]{8,})",
    ),
    form(
        "bearer", Words("bearer", "authorization"),
        r"(?i)(?<![a-z0-9])(?:bearer\s{1,4}|authorization['\"]?\s?[:=]\s{0,3}['\"]?(?:basic|token|api-?key)\s{1,4})"
        r"(?P<value>(?=[a-z._~+/-]*[\d=])[a-z0-9._~+/=-]{12,})",
    ),
    form(
        "credentials", lambda clues: "://" in clues.text and "@" in clues.text,
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@\"'<>\x00]{0,100}:"
        r"(?P<value>[^\s/@\"'<>\x00]{1,200})@",
        is_value,
    ),
    # Oracle's, Go's and Windows', which have no `//`.
    form(
        "credentials", lambda clues: "@" in clues.text,
        r"(?:(?<=jdbc:oracle:thin:)[^\s/@\"'<>\x00]{1,100}/|(?<![\w/:.+-])(?:[\w.-]{1,32}/)?[\w.+-]{1,64}:"
        r"(?=[^\s@]{0,200}@(?:(?:tcp|unix)\(|(?:\d{1,3}\.){3}\d)))(?P<value>[^\s/@\"'<>\x00]{1,200})@", is_value,
    ),
)  # fmt: skip
