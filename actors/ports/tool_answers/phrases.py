"""What failures are called, in the languages that tools answer in: data for `texts`.

Each is a regular expression, of alternatives without a quantifier that could backtrack. `HEADS` and `FINE` begin a
message; `PHRASES` and `FOREIGN` may stand anywhere in a short one.
"""

HEADS = (
    r"unknown \w|missing\b|unsupported\b|unauthenticated\b|access to\b.{0,200}\b(?:denied|blocked)\b|"
    r"bad (?:request|gateway)\b|request time|gateway time|too many requests\b|rate limit|internal server error\b|"
    r"unprocessable\b|illegal\b|unrecogni[sz]ed\b|traceback\b|panic:|fatal\b|segmentation fault\b|uncaught\b|"
    r"unhandled\b|oops\b|nope\b|wrong\b|incorrect\b|i tried reusing the same input\b|duplicate (?:key|entry)\b|"
    r"no route to host\b|name or service not known\b|"
    r"(?:i(?:['’]m| am) (?:so |very )?)?sorry\b(?! for the (?:wait|delay))|"
    r"i(?:['’]m| am) (?:afraid|unable|not able|not allowed)\b|i (?:can['’]t|cannot|can not|won['’]t|may not|refuse)\b|"
    r"please (?:log|sign) in\b|only .{1,60}\b(?:may|can)\b|connection (?:refused|reset|error|timed out|closed)\b|"
    r"(?:killed|terminated)$|no \w+ (?:was|were) \w+ed\b|(?:\w+ )?cancell?ed(?::|$)"
)
PHRASES = (
    r"(?:apologies|unfortunately|aborted|interrupted|declined|refused|refusing|bounced|rejected|forbidden|forbids|"
    r"unauthori[sz]ed|insufficient|invalid|unavailable|unreachable|unterminated|restricted|mismatch|malformed|corrupt(?:ed)?|"
    r"misconfigured|throttled|rate.?limit(?:ed|ing)?|read-only mode|syntax error|timed?[ -]?out|fail(?:ed|ure)|"
    r"fully booked|exceed(?:s|ed)|\w+er than the (?:limit|maximum)|bad credentials|faults?$|switched off)\b|"
    r"can(?:not|['’]t| not| only)\b|could(?: not|n['’]t)\b|unable to\b|must (?:be|have|provide|contain|specify|not"
    r"|match|include|start)\b|may not have access\b|no longer \w|does not add up\b|"
    r"nothing was (?:\w+ed|sent|paid|done|made|taken|written)\b|"
    r"(?:do|does|did)(?: not|n['’]t) (?:exist|support|have|match|belong|accept|allow|include|cover|respond|confirm"
    r"|approve|answer|complete|work|apply)\b|(?:have|has)n['’]t (?:access|permission|the rights?|enough|any)\b|"
    r"not an? \w|not (?:currently )?(?:found|valid|enough|sufficient|ok|sent|made|of type|something (?:i|we|you)"
    r"|be (?:blank|empty|null)|running|logged in|signed in|allowed|supported|permitted|auth(?:ori[sz]|enticat)ed"
    r"|available|recogni[sz]ed|enabled|implemented|defined|performed|executed|saved|created|updated|deleted|completed"
    r"|processed|refunded|cancell?ed|booked|applied|accepted|changed|accessible|reachable|visible|enrolled|connected|installed"
    r"|configured|initiali[sz]ed|delivered)\b|"
    r"(?:is|are|was|were|been|got) (?:denied|suspended|deprecated|discontinued|revoked)\b|"
    r"(?:is|are) (?:required|missing|unknown|incorrect|wrong|disabled|expired|empty|blank|null|undefined|locked|full"
    r"|archived|reached|read-only)\b|is (?:stale|taken|gone|dead|outside|not in|not one of|(?:too )?busy)\b|"
    r"(?:server|service|system) (?:too )?busy\b|isn['’]t (?:an?|in|valid|supported|allowed)\b|"
    r"(?:has|have) (?:expired|run out)\b|(?:has|have|had) no (?!(?:\w+ )?\w+s\b)|(?:have|has) no .{1,30} left\b|"
    r"(?:access|permission|authori[sz]ation) denied\b"
    r"|denied(?=[.:;,!]|$| (?:because|due|by|for|to|since|as|access|this|your)\b)|"
    r"expected (?:an? )?(?:int|str|integer|string|number|float|bool|boolean|list|array|object|dict)\b|"
    r"expected\b.{1,80}\b(?:got|but|found|received|to be)\b|unexpected (?:token|end|response|status|type|value"
    r"|character|(?:keyword )?argument|eof)\b|already (?:\w+ed|exists?|taken|in use|sold|been)\b|"
    r"(?:locked|blocked) by\b|(?:limit|maximum|end) (?:reached|of \d+ times)\b|reached the (?:end|limit|maximum)\b|"
    r"try again\b|fix (?:the|your) (?:errors?|mistakes)\b|no such\b|out of (?:range|bounds|stock|memory|credits)\b|"
    r"too (?:long|large|many|short|big|small)\b|no (?:write |read )?(?:access|permissions?|rights)\b|"
    r"(?:only|exactly) one of\b|either\b.{0,80}\bmust\b|no .{1,40}\b(?:provided|given|specified|supplied|set"
    r"|configured|received|selected|connected)\b|missing (?:required|value|parameter|argument|field|the|a|an|or)\b|"
    r"required (?:parameter|argument|field|property)\b|(?:parameter|argument|field|property) (?:missing|required)\b|"
    r"(?:login|sign-?in|authentication|payment|confirmation) required\b|requires? (?:an?|the) \w|"
    r"(?:need|needs|requires) (?:\w+ ){0,2}(?:approval|authori[sz]ation|permission)\b|you (?:have|need) to (?:be|have"
    r"|verify|log|sign|confirm|register)\b|(?:division|modulo) by zero\b|session (?:has )?(?:ended|expired)\b|"
    r"(?:log|sign) in (?:again|first)\b|only (?:possible|allowed|permitted)\b|we only \w|instead of using\b|"
    r"(?:encountered|exited with|an|was an) (?:an )?(?:unexpected |unknown |internal )?error\b|error occurred\b|"
    r"used (?:up|all (?:of )?your)\b|there is no .{1,40} (?:with|by|under|named|called|that you)\b|connect error\b|"
    r"(?:status(?: code)?\W{0,3}|HTTP(?:/\d(?:\.\d)?)?\W{1,3})[45]\d\d\b|(?<=: )[45]\d\d [A-Z]\w|"
    r"ran (?:longer|into a problem)\b|in the past\b|moved or deleted\b|no matches found\b|not responding\b"
)
NEGATED = (
    r"(?:is|are|was|were|am|been|do|does|did|has|have|had|will|would|could|may) not\b|[a-z]{2,6}n['’]t\b|\bnicht\b"
    r"|\bn['’]\w{1,12} (?:pas|plus)\b|\bne \w{1,12} (?:pas|plus)\b|^\W{0,3}no \w{2,14}(?:es|as|os|en|an)\b|\bnão\b"
    r"|\bnon \w|\bне \w|ません|\bniet\b|\bnie \w|不"
)
"""That something is not so, in many languages: what a failure is known by in a sentence that stands alone."""
SUCCESS = (
    r"success|succeeded\b|no (?:errors?|issues|problems|failures)\b|without (?:any )?(?:errors?|issues)\b|\d+ passed\b|"
    r"\b(?:was|were|has been|have been) (?:approved|confirmed|accepted|completed|delivered)\b|"
    r"0 (?:errors?|failures|failed)\b|here (?:are|is) (?:your|the)\b|(?:is|was|been) (?:fixed|resolved)\b|erfolgreich"
    r"|behoben|réussi|résolu|avec succès|con éxito|exitos|com sucesso|bem-sucedid|con successo|成功|正常に|完了し|성공"
    r"|успешно|успішно|\bgelukt\b|succesvol|verholpen|pomyślnie|başarıyla|\blyckades\b|framgångsrik|vellykket"
    r"|úspěšně|sikeresen|cu succes|onnistuneesti|thành công|berhasil|สำเร็จ|بنجاح|सफलतापूर्वक|בהצלחה|επιτυχ"
)
FINE = (
    r"(?:successfully|done|ok|created|updated|deleted|saved|sent|inserted|wrote|completed|finished|clicked|typed|opened"
    r"|booked|refunded|paid|navigated|searched|search results|echo|debug|info|the (?:result|sum)|here (?:is|are)"
    r"|results?)\b|(?!expected|exceeded|failed|rejected|required|refused)\w{3,14}ed [1-9]\d{0,9} (?:of|\w+s)\b|"
    r"\d+ (?:\w+ )?(?:issues?|tickets?|results?|items?|files?|match(?:es)?|messages|entries|hits)(?: found)?:|"
    r"the (?:\w+ )?(?:page|list|cart|inbox|folder|directory|queue|file|table|calendar|document) is (?:empty|blank)\b|"
    r"you (?:do not|don['’]t) have any (?!access|permission|rights?|credits?)|no \w{2,20}s found\b|"
    r"no (?:results?|match|matches|matching|items?|records?|entries|documents?|events|messages|rows|data|changes"
    r"|output|new|open|flights|hits|tasks|files|users)\b|nothing (?:found|to)\b|found (?:no|0|\d+)\b|"
    r"0 (?:results?|matches|rows|hits|records|items)\b|(?:there are|there is) no\b|(?:your )?search did not match\b|"
    r"keine (?:ergebnisse|treffer|einträge)|aucune? (?:résultat|entrée|message)|(?:no hay|sin) (?:resultados|datos)|"
    r"(?:nenhum|sem) resultado|nessun risultato|没有(?:结果|数据|找到)|无结果|結果はありません|該当する|"
    r"(?:\w{1,20} )?errors?\b\W{0,3}(?:0|none|null|no|nil)\b|"
    r"[^\n]{0,100}\b(?:no|zero|0|without(?: any)?) (?:\w{1,20} )?(?:errors?|failures?|exceptions?)\b|"
    r"[^\n]{0,100}\b(?:no hay|sin|keine?|aucune?|pas d['’]|nessuna?|nenhuma?|ningún|sem|geen|ingen|inga|brak) "
    r"(?:errores|error|fehler|erreurs?|errore|errori|erros?|fouten|fel|feil|błędów)\b"
)
"""That it was done, that nothing was found, or went wrong: a message that begins so is of no failure."""
FOREIGN = "|".join(
    (
        # German
        "fehler|fehlgeschlagen|gescheitert|ungültig|"
        "nicht (?:gefunden|vorhanden|erlaubt|zulässig|möglich|verfügbar|berechtigt|unterstützt|gespeichert"
        "|ausgeführt|bekannt|genügend|ausreichend)|"
        r"existier\w{1,3} (?:nicht|bereits)|nicht existier|"
        r"(?:konnte|konnten|kann|können|darf|dürfen|sollte|sollten|wurde|wurden)\b.{0,80}\bnicht\b|verweigert|"
        r"abgelehnt|zeitüberschreitung|abgelaufen|\bfehlt\b|\bfehlen\b|erforderlich|bereits vergeben|"
        r"zu (?:lang|kurz|groß|klein|viele)\b|falsche[rsnm]?\b|keine? (?:gültige|berechtigung|zugriff|verbindung)|"
        r"überschritten|unbekannt|abgebrochen|gesperrt|muss\b.{0,60}\bsein\b|leider|nicht geklappt",
        # French
        r"erreur|échec|échoué|invalide|introuvable|\bn'(?:existe|est|a|ont|était|êtes|avez)\b.{0,40}\bpas\b|"
        r"\bne (?:peut|peuvent|doit|doivent|sont|correspond|contient)\b.{0,40}\bpas\b|"
        "non (?:trouvé|autorisé|valide|pris)|impossible d[e']|refusé|interdit|expiré|délai dépassé|manquant|"
        r"obligatoire|\brequise?s?\b|existe déjà|trop (?:long|court|grand|petit)|incorrect|inconnu|insuffisant|"
        "indisponible|dépassé|malheureusement|désolé",
        # Spanish
        r"\b(?:un )?error (?:al|de|del|en|desconocido|interno|inesperado)\b|\bun error\b|\bfall[óo]\b|fallid|inválid|"
        r"no (?:es|son) válid|\bno (?:existe|se|pudo|puede|pueden|debe|debería|tiene|está|fue|es|hay)\b|"
        "no (?:encontrad|autorizad|disponible|permitid|válid)|denegad|prohibid|expir[óa]|tiempo de espera|agotad|"
        r"\bfalta\b|obligatori|requerid|ya existe|demasiad|desconocid|insuficiente|imposible|rechazad|"
        "lamentablemente|no se pudo",
        # Portuguese
        r"\berro\b|\bfalha\b|falhou|"
        "não (?:é|existe|pôde|pode|deve|deveria|foi|há|está|tem|encontrad|autorizad|permitid|disponível|válid|foram)|"
        "negado|proibid|expirou|expirad|esgotad|obrigatóri|já existe|muito (?:long|grande|curt|pequen)|incorret|"
        "desconhecid|indisponível|recusad|ausente|infelizmente",
        # Italian
        r"errore|fallit|non (?:trovat|valid|esiste|è|autorizzat|consentit|disponibile|può)|impossibile|\bnegat[oa]\b|"
        "scadut|mancante|esiste già|sconosciut|purtroppo|non riuscit",
        # Chinese
        "错误|失败|无法|不存在|未找到|找不到|无效|无权|没有权限|拒绝|超时|过期|不能|不可|不应|不得|不允许|禁止|缺少"
        "|必填|不支持|不足|已存在|已经存在|不正确|异常|不是.{0,8}有效|太长|过长|"
        "过大|未授权|出错|不合法|錯誤|失敗|無法|無效|逾時|拒絕|抱歉",
        # Japanese
        "エラー|できません|できなかった|見つかりません|見つからない|存在しません|存在しない|ありません|無効|不正"
        "|拒否|タイムアウト|期限切れ|必須|不足|既に存在|すでに存在|異なります|間違|禁止|すぎます|"
        "すぎる|なりません|いけません|未対応|例外",
        # Korean, Russian
        "오류|실패|찾을 수 없|존재하지 않|유효하지 않|잘못된|권한이 없|거부|시간 초과|만료|할 수 없|ошибк|не найден"
        "|не удалось|недопустим|неверн|"
        "отказано|запрещ|истек|превышен|невозможно|не существует",
        # Ukrainian, Polish, Czech
        r"помилк|не знайдено|не вдалося|не існує|недійсн|\bbłąd\b|nie znaleziono|nie istnieje|nie można|nie udało|"
        r"nieprawidłow|niepoprawn|odmow|brak uprawnień|wygas|\bchyba\b|nenalezen|neexistuje|selhal|nelze|neplatn|"
        "nepodařilo",
        # Dutch, Swedish, Danish, Norwegian, Finnish
        r"niet gevonden|bestaat niet|mislukt|ongeldig|\bfout(?:melding)?\b|\bkan niet\b|geweigerd|"
        r"niet (?:toegestaan|beschikbaar|mogelijk|bevoegd)|verlopen|\bkon .{1,60} niet\b|verplicht|hittades inte|"
        r"finns inte|misslyckades|ogiltig|\bfel:|nekad|kunde inte|kan inte|ikke fundet|ikke funnet|findes ikke|"
        r"finnes ikke|mislykkedes|mislyktes|ugyldig|\bfejl\b|\bfeil\b|kunne ikke|kan ikke|afvist|avvist|ei löyd|"
        r"ei löytynyt|\bvirhe\b|epäonnistui|ei voi|virheellinen",
        # Hungarian, Romanian, Turkish, Greek
        r"nem található|nem létezik|sikertelen|\bhiba\b|érvénytelen|nem sikerült|"
        r"nu (?:a fost găsit|există|se poate|este)|\beroare\b|eșuat|nevalid|bulunamadı|bulunmuyor|başarısız|"
        r"\bhata(?:sı)?\b|geçersiz|reddedildi|mevcut değil|δεν βρέθηκε|δεν υπάρχει|σφάλμα|απέτυχε|αποτυχία|άκυρ|"
        "μη έγκυρ",
        # Arabic, Hebrew, Hindi, Vietnamese, Indonesian, Thai
        "خطأ|فشل|غير موجود|غير صالح|لم يتم العثور|تعذر|مرفوض|לא נמצא|שגיאה|נכשל|לא תקין|त्रुटि|विफल|नहीं मिला|"
        r"अमान्य|असफल|không tìm thấy|không tồn tại|không hợp lệ|thất bại|\blỗi\b|không thể|tidak ditemukan|"
        r"tidak valid|\bgagal\b|kesalahan|tidak dapat|ไม่พบ|ข้อผิดพลาด|ล้มเหลว|ไม่ถูกต้อง",
    )
)
