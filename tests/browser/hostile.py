"""A text that would like to be markup, and to turn the line around it."""

HOSTILE = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'</script>\u202e olleh"
