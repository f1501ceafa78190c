"""Send a mail by SMTP, with encryption unless the administrator says otherwise, and say why it was not taken.

Never: sends a password in the clear, or puts one into a message. Runs on a thread of its own.
"""

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from kaiwo.model.alerts.channel import MailSettings
from kaiwo.runtime.alerting.send_http import NotTaken
from kaiwo.telemetry.alerts.message_forms import MailText

MAIL_S = 20.0


def send_mail(mail: MailSettings, to: Sequence[str], text: MailText, password: str, ca_file: str) -> NotTaken | None:
    """None: the server took it."""
    if password and mail.security == "none":
        return NotTaken("security is none, and the password would be sent in the clear", False)
    host, _, port = mail.server.rpartition(":")
    trust = ssl.create_default_context(cafile=ca_file or None)
    try:
        if mail.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, int(port), timeout=MAIL_S, context=trust)
        else:
            server = smtplib.SMTP(host, int(port), timeout=MAIL_S)
        with server:
            if mail.security == "starttls":
                server.starttls(context=trust)
            if mail.user:
                server.login(mail.user, password)
            server.send_message(_message(mail, to, text))
    except smtplib.SMTPAuthenticationError:
        return NotTaken("the mail server refused the login", False)
    except smtplib.SMTPRecipientsRefused:
        return NotTaken("the mail server refused every address", True)
    except smtplib.SMTPResponseException as error:
        return NotTaken(f"SMTP status {error.smtp_code}", 500 <= error.smtp_code < 600)
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return NotTaken(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no connection'}"[:150], False)
    return None


def _message(mail: MailSettings, to: Sequence[str], text: MailText) -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = text.subject, mail.sender, ", ".join(to)
    message["Date"], message["Message-ID"] = (
        formatdate(localtime=False),
        make_msgid(domain=mail.sender.partition("@")[2]),
    )
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text.body)
    return message
