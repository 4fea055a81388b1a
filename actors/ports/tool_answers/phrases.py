"""What failures are called, in the languages that tools answer in: data for `texts`.

Each entry is a plain alternative of a regular expression without a quantifier that could backtrack. `HEADS` begin a
message; `PHRASES` and `FOREIGN` may stand anywhere in a short one.
"""

HEADS = (
    r"failed\b", r"failure\b", r"unable to\b", r"cannot\b", r"can't\b", r"can not\b", r"could not\b", r"couldn't\b",
    r"invalid\b", r"unknown \w", r"missing\b", r"unsupported\b", r"unauthori[sz]ed\b", r"unauthenticated\b",
    r"forbidden\b", r"access denied\b", r"access to\b.{0,200}\b(?:denied|blocked)\b", r"permission denied\b",
    r"not found\b", r"no such\b", r"not authori[sz]ed\b", r"not authenticated\b", r"not allowed\b", r"bad request\b",
    r"bad gateway\b", r"request timed? ?out\b", r"timed? ?out\b", r"gateway time-?out\b", r"too many requests\b",
    r"rate limit", r"internal server error\b", r"service unavailable\b", r"unprocessable\b", r"illegal\b",
    r"unrecogni[sz]ed\b", r"rejected\b", r"refused\b", r"aborted\b", r"traceback\b", r"panic:", r"fatal\b",
    r"segmentation fault\b", r"uncaught\b", r"unhandled\b", r"oops\b", r"wrong\b", r"incorrect\b", r"insufficient\b",
    r"i tried reusing the same input\b", r"duplicate (?:key|entry)\b", r"quota exceeded\b",
    r"no route to host\b", r"name or service not known\b", r"(?:i(?:['’]m| am) (?:so |very )?)?sorry\b",
    r"i(?:['’]m| am) (?:afraid|unable|not able|not allowed)\b", r"i (?:can['’]t|cannot|can not|won['’]t|may not)\b",
    r"please (?:log|sign) in\b", r"only .{1,60}\b(?:may|can)\b",
    r"connection (?:refused|reset|error|timed out|closed)\b",
)  # fmt: skip
PHRASES = (
    r"not found\b", r"(?:does|do|did) not exist\b", r"(?:does|do|did)n't exist\b",
    r"no longer (?:exists|available|valid|supported|active|accessible|possible)\b",
    r"not (?:a |an )?valid\b", r"invalid\b",
    r"is (?:required|missing|unknown|incorrect|wrong|unavailable|disabled)\b",
    r"are (?:required|missing)\b", r"missing (?:required|value|parameter|argument|field)\b",
    r"not (?:allowed|supported|permitted|authori[sz]ed|available|recogni[sz]ed|enabled|implemented|defined)\b",
    r"not (?:performed|executed|saved|sent|created|updated|deleted|completed|processed|refunded|cancell?ed|booked|"
    r"applied|accepted|changed|of type|accessible|reachable|visible)\b",
    r"(?:does|do) not (?:support|have|match|belong|accept|allow|include|cover)\b",
    r"(?:doesn|don|didn)['’]t (?:support|match|belong|include|respond)\b", r"nothing was \w+ed\b",
    r"must (?:be|have|provide|contain|specify|not|match|include|start)\b", r"should not be (?:blank|empty|null)\b",
    r"cannot\b", r"can['’]t\b", r"can (?:not be|only)\b", r"could not\b", r"couldn't\b", r"unable to\b", r"failed\b",
    r"failure\b",
    r"denied\b", r"refus(?:ed|ing)\b", r"rejected\b", r"timed out\b", r"time-?out\b", r"(?:has|have|is) expired\b",
    r"declined\b", r"(?:server|service|system) (?:is )?(?:too )?busy\b",
    r"expected (?:an? )?(?:int|str|integer|string|number|float|bool|boolean|list|array|object|dict)\b",
    r"insufficient\b", r"not enough\b", r"not sufficient\b", r"unauthori[sz]ed\b", r"forbidden\b",
    r"already (?:exists?|taken|in use|cancell?ed|refunded|closed|booked|used|shipped|deleted|redeemed|reserved|sold|"
    r"registered|locked|assigned|expired|claimed|voided|been)\b", r"locked by\b", r"aborted\b", r"interrupted\b",
    r"blocked by\b", r"exceed(?:s|ed)\b", r"limit (?:reached|of \d+ times)\b", r"try again\b",
    r"fix (?:the|your) (?:errors?|mistakes)\b", r"no such\b", r"encountered an error\b", r"error occurred\b",
    r"out of (?:range|bounds|stock|memory|credits)\b", r"too (?:long|large|many|short|big|small)\b",
    r"no (?:write |read )?(?:access|permissions?|rights)\b", r"may not have access\b", r"restricted\b",
    r"not (?:currently )?(?:enrolled|logged in|signed in|connected|running|installed|configured|initiali[sz]ed)\b",
    r"is not an? \w+", r"does not add up\b", r"only one of\b", r"exactly one of\b", r"either\b.{0,80}\bmust\b",
    r"no .{1,40}\b(?:provided|given|specified|supplied|set|configured|received|selected|connected)\b", r"not an? \w",
    r"is (?:empty|blank|null|undefined|malformed|locked|read-only)\b",
    r"required (?:parameter|argument|field|property)\b",
    r"(?:parameter|argument|field|property) (?:missing|required)\b", r"missing (?:the|a|an|or)\b", r"faults?$",
    r"(?:mismatch|malformed|corrupt|corrupted|unreachable|misconfigured|throttled|rate.?limit(?:ed|ing)?|"
    r"read-only mode)\b",
    r"expected\b.{1,80}\b(?:got|but|found|received|to be)\b", r"not ok\b", r"(?:has|have|had) no (?!\w+s\b)",
    r"unexpected (?:token|end|"
    r"response|status|type|value|character|(?:keyword )?argument|eof)\b", r"(?:division|modulo) by zero\b",
    r"session (?:has )?(?:ended|expired)\b", r"(?:log|sign) in (?:again|first)\b",
    r"only (?:possible|allowed|permitted)\b",
    r"(?:needs|requires) (?:\w+ ){0,2}(?:approval|authori[sz]ation|permission)\b", r"is not in\b",
    r"isn't (?:a|an|in|valid|supported|allowed)\b",
    r"exited with an error\b", r"syntax error", r"(?:an|was an) (?:unexpected |unknown |internal )?error\b",
    r"instead of using\b",
)  # fmt: skip
SUCCESS = (
    r"success", r"succeeded\b", r"no (?:errors?|issues|problems|failures)\b",
    r"without (?:any )?(?:errors?|issues)\b", r"\d+ passed\b",
    r"\b(?:was|were|has been|have been) (?:approved|confirmed|accepted|completed|delivered)\b",
    r"0 (?:errors?|failures|failed)\b",
    "erfolgreich", "réussi", "avec succès", r"con éxito", r"exitos", r"com sucesso", r"bem-sucedid", r"con successo",
    "成功", "正常に", "完了し", "성공", "успешно", "успішно", r"\bgelukt\b", "succesvol", "pomyślnie", "başarıyla",
    r"\blyckades\b", "framgångsrik", "vellykket", "úspěšně", "sikeresen", "cu succes", "onnistuneesti", "thành công",
    "berhasil", "สำเร็จ", "بنجاح", "सफलतापूर्वक", "בהצלחה", "επιτυχ",
)  # fmt: skip
FOUND_NOTHING = (
    r"no (?:results?|match|matches|matching|items?|records?|entries|documents?|events|messages|rows|data|"
    r"changes|output|"
    r"new|open|flights|hits|tasks|files|users)\b",
    r"nothing (?:found|to)\b", r"found (?:no|0|\d+)\b", r"0 (?:results?|matches|rows|hits|records|items)\b",
    r"(?:there are|there is) no\b", r"keine (?:ergebnisse|treffer|einträge)", r"aucun(?:e)? (?:résultat|entrée)",
    r"(?:no hay|sin) (?:resultados|datos)", r"(?:nenhum|sem) resultado", "没有(?:结果|数据|找到)", "无结果",
    "結果はありません",
    "該当する", r"nessun risultato",
)  # fmt: skip
FOREIGN = (
    # German
    "fehler", "fehlgeschlagen", "gescheitert", "ungültig",
    r"nicht (?:gefunden|vorhanden|erlaubt|zulässig|möglich|verfügbar|"
    r"berechtigt|unterstützt|gespeichert|ausgeführt|bekannt|genügend|ausreichend)",
    r"existier\w{1,3} (?:nicht|bereits)",
    r"nicht existier", r"(?:konnte|konnten|kann|können|darf|dürfen|sollte|sollten|wurde|wurden)\b.{0,80}\bnicht\b",
    "verweigert",
    "abgelehnt", "zeitüberschreitung", "abgelaufen", r"\bfehlt\b", r"\bfehlen\b", r"erforderlich", "bereits vergeben",
    r"zu (?:lang|kurz|groß|klein|viele)\b", r"falsche[rsnm]?\b",
    r"keine? (?:gültige|berechtigung|zugriff|verbindung)",
    "überschritten", "unbekannt", "abgebrochen", "gesperrt", r"muss\b.{0,60}\bsein\b",
    # French
    "erreur", r"échec", r"échoué", "invalide", "introuvable",
    r"\bn'(?:existe|est|a|ont|était|êtes|avez)\b.{0,40}\bpas\b",
    r"\bne (?:peut|peuvent|doit|doivent|sont|correspond|contient)\b.{0,40}\bpas\b",
    r"non (?:trouvé|autorisé|valide|pris)",
    r"impossible d[e']", "refusé", "interdit", "expiré", "délai dépassé", "manquant", "obligatoire",
    r"\brequise?s?\b", r"existe déjà",
    r"trop (?:long|court|grand|petit)", "incorrect", "inconnu", "insuffisant", "indisponible", "dépassé",
    # Spanish
    r"\b(?:un )?error (?:al|de|del|en|desconocido|interno|inesperado)\b", r"\bun error\b", r"\bfall[óo]\b",
    "fallid", r"inválid", r"no (?:es|son) válid", r"\bno (?:existe|se|pudo|puede|pueden|debe|"
    r"debería|tiene|está|fue|es|hay)\b", r"no (?:encontrad|autorizad|disponible|permitid|válid)", "denegad",
    "prohibid",
    r"expir[óa]", "tiempo de espera", "agotad", r"\bfalta\b", "obligatori", "requerid", r"ya existe", "demasiad",
    "desconocid", "insuficiente", "imposible", "rechazad",
    # Portuguese
    r"\berro\b", r"\bfalha\b", "falhou",
    r"não (?:é|existe|pôde|pode|deve|deveria|foi|há|está|tem|encontrad|autorizad|"
    r"permitid|disponível|válid|foram)", "negado", "proibid", r"expirou", "expirad", "esgotad", r"obrigatóri",
    r"já existe", r"muito (?:long|grande|curt|pequen)", "incorret", "desconhecid", "indisponível", "recusad",
    "ausente",
    # Italian
    "errore", "fallit", r"non (?:trovat|valid|esiste|è|autorizzat|consentit|disponibile|può)", "impossibile",
    r"\bnegat[oa]\b",
    "scadut", "mancante", "esiste già", "sconosciut",
    # Chinese
    "错误", "失败", "无法", "不存在", "未找到", "找不到", "无效", "无权", "没有权限", "拒绝", "超时", "过期",
    "不能", "不可", "不应",
    "不得", "不允许", "禁止", "缺少", "必填", "不支持", "不足", "已存在", "已经存在", "不正确", "异常",
    "不是.{0,8}有效", "太长", "过长",
    "过大", "未授权", "出错", "不合法", "錯誤", "失敗", "無法", "無效", "逾時", "拒絕",
    # Japanese
    "エラー", "できません", "できなかった", "見つかりません", "見つからない", "存在しません", "存在しない",
    "ありません", "無効", "不正",
    "拒否", "タイムアウト", "期限切れ", "必須", "不足", "既に存在", "すでに存在", "異なります", "間違", "禁止",
    "すぎます", "すぎる",
    "なりません", "いけません", "未対応", "例外",
    # Korean, Russian
    "오류", "실패", "찾을 수 없", "존재하지 않", "유효하지 않", "잘못된", "권한이 없", "거부", "시간 초과", "만료",
    "할 수 없",
    "ошибк", "не найден", "не удалось", "недопустим", "неверн", "отказано", "запрещ", "истек", "превышен",
    "невозможно",
    "не существует",
    # Ukrainian, Polish, Czech
    "помилк", "не знайдено", "не вдалося", "не існує", "недійсн",
    r"\bbłąd\b", "nie znaleziono", "nie istnieje", "nie można", r"nie udało", "nieprawidłow", "niepoprawn", "odmow",
    "brak uprawnień", "wygas", r"\bchyba\b", "nenalezen", "neexistuje", "selhal", "nelze", "neplatn", "nepodařilo",
    # Dutch, Swedish, Danish, Norwegian, Finnish
    "niet gevonden", "bestaat niet", "mislukt", "ongeldig", r"\bfout(?:melding)?\b", r"\bkan niet\b", "geweigerd",
    r"niet (?:toegestaan|beschikbaar|mogelijk|bevoegd)", "verlopen", r"\bkon .{1,60} niet\b", "verplicht",
    "hittades inte", "finns inte", "misslyckades", "ogiltig", r"\bfel:", "nekad", r"kunde inte", r"kan inte",
    "ikke fundet", "ikke funnet", "findes ikke", "finnes ikke", "mislykkedes", "mislyktes", "ugyldig", r"\bfejl\b",
    r"\bfeil\b", r"kunne ikke", r"kan ikke", "afvist", "avvist",
    "ei löyd", "ei löytynyt", r"\bvirhe\b", "epäonnistui", "ei voi", "virheellinen",
    # Hungarian, Romanian, Turkish, Greek
    "nem található", "nem létezik", "sikertelen", r"\bhiba\b", "érvénytelen", "nem sikerült",
    r"nu (?:a fost găsit|există|se poate|este)", r"\beroare\b", "eșuat", "nevalid",
    "bulunamadı", "bulunmuyor", "başarısız", r"\bhata(?:sı)?\b", "geçersiz", "reddedildi", "mevcut değil",
    "δεν βρέθηκε", "δεν υπάρχει", "σφάλμα", "απέτυχε", "αποτυχία", "άκυρ", "μη έγκυρ",
    # Arabic, Hebrew, Hindi, Vietnamese, Indonesian, Thai
    "خطأ", "فشل", "غير موجود", "غير صالح", "لم يتم العثور", "تعذر", "مرفوض", "לא נמצא", "שגיאה", "נכשל", "לא תקין",
    "त्रुटि", "विफल", "नहीं मिला", "अमान्य", "असफल", "không tìm thấy", "không tồn tại", "không hợp lệ", "thất bại",
    r"\blỗi\b", "không thể", "tidak ditemukan", "tidak valid", r"\bgagal\b", "kesalahan", "tidak dapat", "ไม่พบ",
    "ข้อผิดพลาด", "ล้มเหลว", "ไม่ถูกต้อง",
)  # fmt: skip
