"""An incident hook as a command: posts one line to a chat that wants its own key for the text.

    hangdrill collect ... --on-hang-command 'python notify_chat.py'     with CHAT_WEBHOOK=https://... in the environment

Slack and Mattermost need no command: --on-hang-webhook "$CHAT_WEBHOOK" posts the news to them as they are.
"""

import json
import os
import sys
import urllib.request

KEY = os.environ.get("CHAT_TEXT_KEY", "content")  # Discord's; others call it text or message
LONGEST = 1900

news = json.load(sys.stdin)
body = json.dumps({KEY: news["text"][:LONGEST]}).encode()
headers = {"Content-Type": "application/json", "User-Agent": "hangdrill", "Idempotency-Key": news["key"]}
request = urllib.request.Request(os.environ["CHAT_WEBHOOK"], data=body, headers=headers)
with urllib.request.urlopen(request, timeout=5) as answer:
    print(f"the chat said {answer.status}")
