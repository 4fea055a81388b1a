"""What failures are called, in the languages that tools answer in: data for `texts`.

Each is a regular expression, of alternatives without a quantifier that could backtrack. `HEADS` begin a message;
`PHRASES` and `FOREIGN` may stand anywhere in a short one.
"""

HEADS = (
    r"failed\b|failure\b|unable to\b|cannot\b|can't\b|can not\b|could not\b|couldn't\b|invalid\b|unknown \w|"
    r"missing\b|unsupported\b|unauthori[sz]ed\b|unauthenticated\b|forbidden\b|access denied\b|"
    r"access to\b.{0,200}\b(?:denied|blocked)\b|permission denied\b|not found\b|no such\b|not authori[sz]ed\b|"
    r"not authenticated\b|not allowed\b|bad request\b|bad gateway\b|request timed? ?out\b|timed? ?out\b|"
    r"gateway time-?out\b|too many requests\b|rate limit|internal server error\b|service unavailable\b|"
    r"unprocessable\b|illegal\b|unrecogni[sz]ed\b|rejected\b|refused\b|aborted\b|traceback\b|panic:|fatal\b|"
    r"segmentation fault\b|uncaught\b|unhandled\b|oops\b|wrong\b|incorrect\b|insufficient\b|"
    r"i tried reusing the same input\b|duplicate (?:key|entry)\b|quota exceeded\b|no route to host\b|"
    r"name or service not known\b|(?:i(?:['’]m| am) (?:so |very )?)?sorry\b|"
    r"i(?:['’]m| am) (?:afraid|unable|not able|not allowed)\b|i (?:can['’]t|cannot|can not|won['’]t|may not)\b|"
    r"please (?:log|sign) in\b|only .{1,60}\b(?:may|can)\b|connection (?:refused|reset|error|timed out|closed)\b|"
    r"nope\b|(?:killed|terminated)$|no \w+ (?:was|were) \w+ed\b|(?:\w+ )?cancell?ed:"
)
PHRASES = (
    r"not found\b|(?:does|do|did) not exist\b|(?:does|do|did)n't exist\b|"
    r"no longer (?:exists|available|valid|supported|active|accessible|possible)\b|not (?:a |an )?valid\b|invalid\b|"
    r"is (?:required|missing|unknown|incorrect|wrong|unavailable|disabled)\b|are (?:required|missing)\b|"
    r"missing (?:required|value|parameter|argument|field)\b|"
    r"not (?:allowed|supported|permitted|authori[sz]ed|available|recogni[sz]ed|enabled|implemented|defined)\b|"
    r"not (?:performed|executed|saved|sent|created|updated|deleted|completed|processed|refunded|cancell?ed|booked"
    r"|applied|accepted|changed|of type|accessible|reachable|visible)\b|"
    r"(?:does|do) not (?:support|have|match|belong|accept|allow|include|cover)\b|"
    r"(?:doesn|don|didn)['’]t (?:support|match|belong|include|respond)\b|nothing was \w+ed\b|"
    r"must (?:be|have|provide|contain|specify|not|match|include|start)\b|should not be (?:blank|empty|null)\b|"
    r"cannot\b|can['’]t\b|can (?:not be|only)\b|could not\b|couldn't\b|unable to\b|failed\b|failure\b|"
    r"(?:is|was|are|were|been|access|permission|authori[sz]ation) denied\b|"
    r"denied(?=[.:;,!]|$| (?:because|due|by|for|to|since|as|access|this|your)\b)|refus(?:ed|ing)\b|rejected\b"
    r"|timed out\b|"
    r"time-?out\b|(?:has|have|is) expired\b|declined\b|(?:server|service|system) (?:is )?(?:too )?busy\b|"
    r"expected (?:an? )?(?:int|str|integer|string|number|float|bool|boolean|list|array|object|dict)\b|insufficient\b|"
    r"not enough\b|not sufficient\b|unauthori[sz]ed\b|forbidden\b|"
    r"already (?:exists?|taken|in use|cancell?ed|refunded|closed|booked|used|shipped|deleted|redeemed|reserved|sold"
    r"|registered|locked|assigned|expired|claimed|voided|been)\b|"
    r"locked by\b|aborted\b|interrupted\b|blocked by\b|exceed(?:s|ed)\b|limit (?:reached|of \d+ times)\b|try again\b|"
    r"fix (?:the|your) (?:errors?|mistakes)\b|no such\b|encountered an error\b|error occurred\b|"
    r"out of (?:range|bounds|stock|memory|credits)\b|too (?:long|large|many|short|big|small)\b|"
    r"no (?:write |read )?(?:access|permissions?|rights)\b|may not have access\b|restricted\b|"
    r"not (?:currently )?(?:enrolled|logged in|signed in|connected|running|installed|configured|initiali[sz]ed)\b|"
    r"is not an? \w+|does not add up\b|only one of\b|exactly one of\b|either\b.{0,80}\bmust\b|"
    r"no .{1,40}\b(?:provided|given|specified|supplied|set|configured|received|selected|connected)\b|not an? \w|"
    r"is (?:empty|blank|null|undefined|malformed|locked|read-only)\b|"
    r"required (?:parameter|argument|field|property)\b|(?:parameter|argument|field|property) (?:missing|required)\b|"
    r"missing (?:the|a|an|or)\b|faults?$|"
    r"(?:mismatch|malformed|corrupt|corrupted|unreachable|misconfigured|throttled|rate.?limit(?:ed|ing)?"
    r"|read-only mode)\b|"
    r"expected\b.{1,80}\b(?:got|but|found|received|to be)\b|not ok\b|(?:has|have|had) no (?!\w+s\b)|"
    r"unexpected (?:token|end|response|status|type|value|character|(?:keyword )?argument|eof)\b|"
    r"(?:division|modulo) by zero\b|session (?:has )?(?:ended|expired)\b|(?:log|sign) in (?:again|first)\b|"
    r"only (?:possible|allowed|permitted)\b|"
    r"(?:needs|requires) (?:\w+ ){0,2}(?:approval|authori[sz]ation|permission)\b|is not in\b|"
    r"isn't (?:a|an|in|valid|supported|allowed)\b|exited with an error\b|syntax error|"
    r"(?:an|was an) (?:unexpected |unknown |internal )?error\b|instead of using\b|unfortunately\b|"
    r"(?:don|doesn|haven|hasn)['’]t have (?:access|permission|the rights?|enough|any)\b|unavailable\b|"
    r"(?:has|have) run out\b|used (?:up|all (?:of )?your)\b|(?:fully|already) booked\b|"
    r"(?:did not|didn['’]t) (?:confirm|respond|approve|answer|complete|work)\b|"
    r"there is no .{1,40} (?:with|by|under|named|called|that you)\b|is (?:stale|archived)\b|is not one of\b|"
    r"not (?:delivered|made)\b|is reached\b|(?:have|has) no .{1,30} left\b|not something (?:i|we|you)\b|"
    r"you (?:have|need) to (?:be|have|verify|log|sign|confirm|register)\b|does not apply\b|connect error\b|"
    r"unterminated\b|ran longer\b|ran into a problem\b|"
    r"apologies\b|no longer \w+|(?:is|are|was|were|been|got) (?:suspended|deprecated|discontinued|revoked)\b"
    r"|switched off\b|is (?:taken|gone|dead)\b"
    r"|requires? (?:an?|the) \w+|(?:login|sign-?in|authentication|payment|confirmation) required\b|bad credentials\b"
    r"|in the past\b"
    r"|(?:is|are) full\b|not responding\b|moved or deleted\b|reached the (?:end|limit|maximum)\b|we only \w+"
    r"|no matches found\b"
)
NEGATED = (
    r"(?:is|are|was|were|am|been|do|does|did|has|have|had|will|would|could|may) not\b|[a-z]{2,6}n['’]t\b|\bnicht\b"
    r"|\bn['’]\w{1,12} (?:pas|plus)\b|\bne \w{1,12} (?:pas|plus)\b|^\W{0,3}no \w{2,14}(?:es|as|os|en|an)\b|\bnão\b"
    r"|\bnon \w|\bне \w"
    r"|ません|\bniet\b|\bnie \w|不"
)
"""That something is not so, in many languages: what a failure is known by in a sentence that stands alone."""
SUCCESS = (
    r"success|succeeded\b|no (?:errors?|issues|problems|failures)\b|without (?:any )?(?:errors?|issues)\b|"
    r"\d+ passed\b|\b(?:was|were|has been|have been) (?:approved|confirmed|accepted|completed|delivered)\b|"
    r"0 (?:errors?|failures|failed)\b|erfolgreich|réussi|avec succès|con éxito|exitos|com sucesso|bem-sucedid|"
    r"con successo|成功|正常に|完了し|성공|успешно|успішно|\bgelukt\b|succesvol|pomyślnie|başarıyla|\blyckades\b"
    r"|framgångsrik|"
    "vellykket|úspěšně|sikeresen|cu succes|onnistuneesti|thành công|berhasil|สำเร็จ|بنجاح|सफलतापूर्वक|בהצלחה|επιτυχ|"
    r"here (?:are|is) (?:your|the)\b|(?:is|was|been) (?:fixed|resolved)\b|behoben|résolu|verholpen"
)
FOUND_NOTHING = (
    r"no (?:results?|match|matches|matching|items?|records?|entries|documents?|events|messages|rows|data|changes"
    r"|output|new|open|flights|hits|tasks|files|users)\b|"
    r"nothing (?:found|to)\b|found (?:no|0|\d+)\b|0 (?:results?|matches|rows|hits|records|items)\b|"
    r"(?:there are|there is) no\b|keine (?:ergebnisse|treffer|einträge)|aucun(?:e)? (?:résultat|entrée)|"
    "(?:no hay|sin) (?:resultados|datos)|(?:nenhum|sem) resultado|没有(?:结果|数据|找到)|无结果|結果はありません"
    "|該当する|nessun risultato"
)
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
