#!/usr/bin/env python3
"""An agent in plain REST, with Python 3.8 or later and nothing but its standard library.

    agent.py TYPE ARGUMENTS          propose the action, wait until it may be executed, execute it once, report how it ended
    agent.py --serve FILE            do so for each item of a JSON list [{"actionType": ..., "arguments": {...}}], all the time
    agent.py --effect-name KEY       print the object name of an effect key
    agent.py --speaker USERNAME      print the part of a statement's name that says who made it

Executing is perform() below: one POST of the arguments to PROVIDER_URL, with the token of the attempt as Idempotency-Key.
Put your own work there; everything else stays as it is.

Exit codes are those of kubectl ctrlrun: 0 committed, 1 an error, nothing was executed, 2 usage, 3 denied, 4 committed already,
5 still waiting or in progress elsewhere, 6 unknown, do not try again, 7 not executed, 8 expired, 9 refused.

In a pod it finds everything by itself but PROVIDER_URL. Elsewhere, or to change it, set
    CTRLRUN_SERVER, CTRLRUN_CA         the apiserver's URL, and the file with its certificate authority
    CTRLRUN_NAMESPACE                  where to act
    CTRLRUN_TOKEN_FILE                 a file with a token; it is read for each request, since it is renewed under us
    CTRLRUN_LEASE_SECONDS (300)        how long the execution may take
    CTRLRUN_TIMEOUT_SECONDS (900)      how long to wait until it may begin; people take their time
    PROVIDER_URL, PROVIDER_CA          where to POST to, and the file with its certificate authority if it is not a public one
    PROVIDER_TOKEN_FILE                a bearer token for the provider
    PROVIDER_TIMEOUT_SECONDS (20)      how long the provider may take
    PROVIDER_NOT_EXECUTED ()           HTTP statuses by which this provider promises, in its documentation, that it did nothing
"""

import base64
import concurrent.futures
import email.utils
import hashlib
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.parse
import uuid
from datetime import datetime, timezone

DONE, ERROR, USAGE, DENIED, COMMITTED_ALREADY, WAITING, UNKNOWN, NOT_EXECUTED, EXPIRED, REFUSED = range(10)

API = "ctrlrun.dev/v1alpha1"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/"
TERMINAL = ("Committed", "Failed", "Ambiguous", "Observed", "Denied", "Blocked", "Expired")

CREATE_WINDOW = 30  # seconds for which a request without a definite answer is repeated
REPORT_WINDOW = 120  # more patient: nobody else can say what happened
REFUSED_WINDOW = 10  # an apiserver that has just started may not know our rights yet
SETTLE_WINDOW = 30  # for the receipt after the report
MAX_ANSWER = 1 << 20  # bytes of a provider's answer that are received; one that goes on has no end
MAX_OUTPUT = 16384  # bytes of it that are kept
PARALLEL = 16  # actions under way at once with --serve; most of them wait for people

stopping = threading.Event()  # SIGTERM or SIGINT came


class Stopped(Exception):
    """The call is over, with this exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class NoAnswer(Exception):
    """A request never got a definite answer. It may have been carried out."""


def note(text):
    sys.stderr.write(f"agent: {text}\n")


def clock():
    """Seconds that go on also while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


# Names


def words(text):
    """The runs of ASCII letters and digits in lower case, joined by dashes. Only ASCII is lower-cased."""
    return b"-".join(re.findall(rb"[a-z0-9]+", text.encode("utf-8", "surrogateescape").lower())).decode()


def effect_name(key):
    """The object name of an effect key: what people recognise, and 100 bits of its SHA-256."""
    slug = words(key)[:30].strip("-") or "k"
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    return slug + "-" + base64.b32encode(digest).decode().lower()[:20]


def speaker(username):
    """The part of a statement's name that says who made it."""
    name = words(username) or "x"
    return name if len(name) <= 100 else name[:60] + "-" + name[-39:]


# Arguments


def parse(text):
    """JSON as it can be stored exactly: no fractions, and no integer beyond 64 bits."""

    def refuse(number):
        raise ValueError(f"the number {number} has a fraction or an exponent; send minor units, or a string")

    def integer(number):
        if not -(2**63) <= int(number) < 2**63:
            raise ValueError(f"the number {number} does not fit 64 bits; send a string")
        return int(number)

    def members(pairs):
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("an object has a key twice")
        return dict(pairs)

    return json.loads(text, parse_float=refuse, parse_constant=refuse, parse_int=integer, object_pairs_hook=members)


def canonical(value):
    """The canonical form, in which arguments are hashed: keys by code point, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def fill(template, arguments, resource=None):
    """A template such as refund:{payment_id}, filled in; None if an argument is missing or no string or integer."""

    def value(match):
        found = arguments.get(match[1])
        if match[1] == "resource" and resource is not None:
            found = resource if "resource" not in arguments else None
        if isinstance(found, bool) or not isinstance(found, (str, int)) or found == "":
            raise LookupError
        return str(found)

    try:
        return re.sub(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", value, template)
    except LookupError:
        return None


class Agent:
    """One identity in one namespace, and its connection to the apiserver."""

    def __init__(self, environ):
        host = environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        host = f"[{host}]" if ":" in host else host
        url = environ.get("CTRLRUN_SERVER") or f"https://{host}:{environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        self.server = urllib.parse.urlsplit(url.rstrip("/"))
        self.token_file = environ.get("CTRLRUN_TOKEN_FILE", ACCOUNT + "token")
        self.namespace = environ.get("CTRLRUN_NAMESPACE") or read_file(ACCOUNT + "namespace")
        self.lease = int(environ.get("CTRLRUN_LEASE_SECONDS", "300"))
        self.timeout = int(environ.get("CTRLRUN_TIMEOUT_SECONDS", "900"))
        self.tls = None
        if self.server.scheme == "https":
            self.tls = ssl.create_default_context(cafile=environ.get("CTRLRUN_CA", ACCOUNT + "ca.crt"))
        self.leave_waiting = False  # see Call.withdraw
        self.date = None  # the apiserver's latest Date, and our clock before we sent the request it answers
        self.username = None

    def send(self, method, path, body):
        """One request: status, JSON, and how long the apiserver asks us to wait before the next."""
        if self.tls:
            connection = http.client.HTTPSConnection(self.server.hostname, self.server.port, timeout=30, context=self.tls)
        else:
            connection = http.client.HTTPConnection(self.server.hostname, self.server.port, timeout=30)
        headers = {"Authorization": "Bearer " + read_file(self.token_file), "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        sent = clock()
        try:
            connection.request(method, self.server.path + path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            if not isinstance(answer, dict):
                raise ValueError("the answer is no object")
            date = email.utils.parsedate_to_datetime(response.headers["Date"]) if response.headers["Date"] else None
            if date:
                self.date = date.timestamp(), sent
            wait = response.headers.get("Retry-After", "")
            return response.status, answer, int(wait) if wait.isdigit() else 0
        finally:
            connection.close()

    def request(self, method, path, body=None, window=CREATE_WINDOW, refused_window=0):
        """send, repeated until there is a definite answer: status and JSON. NoAnswer if there is none within the window.

        A request without an answer may have been carried out, so whoever creates something must recognise its own when it is
        told that the name is taken."""
        begun, delay, refused = clock(), 0.1, None
        while True:
            why, ask = "", 0
            try:
                status, answer, ask = self.send(method, path, body)
                why = f"{status} {answer.get('message', '')}"
            except (OSError, http.client.HTTPException, ValueError) as error:
                status, why = 0, str(error) or type(error).__name__
            again = status == 0 or status == 429 or status >= 500
            if status in (401, 403) and refused_window and not by_admission(answer):
                refused = refused or clock()
                again = clock() - refused < refused_window
            if not again:
                return status, answer
            wait = max(ask, delay * random.uniform(0.8, 1.2))
            if clock() + wait - begun > window:
                raise NoAnswer(f"{method} {path}: {why}")
            time.sleep(wait)
            delay = min(2 * delay, 5)

    def path(self, kind, name=""):
        return f"/apis/{API}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def create_or_read(self, kind, item, window=CREATE_WINDOW, refused_window=0):
        """Creates an object, or reads what has its name: the status of the create, and what is there then."""
        begun = clock()
        while True:
            status, answer = self.request("POST", self.path(kind), item, window, refused_window)
            if status != 409:
                return status, answer
            read, existing = self.request("GET", self.path(kind, item["metadata"]["name"]), None, window, refused_window)
            if read == 200:
                return 409, existing
            if read != 404 or clock() - begun > window:  # 404: it was deleted between the two requests
                return 409, {}

    def now(self):
        """The latest that the apiserver's clock can show: Date is cut to seconds, and was read after we had sent."""
        if not self.date:
            return time.time()
        date, sent = self.date
        return date + 1 + clock() - sent

    def whoami(self):
        """What the apiserver takes us for. It goes into every statement, and a statement with another is refused."""
        if self.username is None:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            status, answer = self.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, refused_window=REFUSED_WINDOW)
            if status != 201:
                raise refusal("ask who this is", status, answer)
            self.username = answer["status"]["userInfo"]["username"]
        return self.username

    def effect_key(self, action_type, arguments):
        """The key that the policies give an action. It only makes a good name: without it everything else is the same."""
        status, answer = self.request("GET", self.path("actionpolicies"))
        entries = [p["spec"]["actions"][action_type] for p in answer.get("items", []) if action_type in p["spec"].get("actions", {})]
        templates = {(entry.get("effect"), entry.get("resource")) for entry in entries if entry}
        if status != 200 or len(templates) != 1:
            return None
        effect, resource = templates.pop()
        return effect and fill(effect, arguments, resource and fill(resource, arguments))

    def names(self, action_type, arguments):
        """Names to try for an Action: its effect's, so that people find it, then others. Any name is accepted."""
        suffix = uuid.uuid4().hex[:8]
        key = self.effect_key(action_type, arguments)
        if not key:
            return [words(action_type)[:91].strip("-") + "-" + suffix]
        name = effect_name(key)
        return [name] + [f"{name}.{i}" for i in range(2, 10)] + [f"{name}-{suffix}"]

    def twin(self, action_type, arguments):
        """An Action of ours that proposes exactly this and waits already, of another process or of one that is gone.

        It is not taken over: this process makes a Claim of its own, and is admitted or not. But people are not asked twice."""
        for state in ("AwaitingApproval", "Claimable"):
            selected = {"status.state": state, "spec.principal.agent": self.whoami(), "spec.actionType": action_type}
            selector = ",".join(name + "=" + re.sub(r"([\\,=])", r"\\\1", value) for name, value in selected.items())
            status, answer = self.request("GET", self.path("actions") + "?fieldSelector=" + urllib.parse.quote(selector))
            for item in answer.get("items", []) if status == 200 else []:
                spec = item["spec"]
                plain = not spec.get("resource") and not spec["principal"].get("user")
                if plain and canonical(spec.get("arguments", {})) == canonical(arguments):
                    return item
        return None

    def run(self, action_type, arguments, perform):
        """The life of one governed action. Returns its exit code."""
        try:
            call = Call(self)
            call.propose(action_type, arguments)
            return call.execute(perform)
        except NoAnswer as error:
            note(f"no answer from the apiserver, nothing was executed: {error}")
            return ERROR
        except Stopped as error:
            note(str(error))
            return error.code


class Call:
    """One proposal and this process: the claimID says "this process", and whoever is admitted by it may execute, once."""

    def __init__(self, agent):
        self.agent = agent
        self.claim_id = str(uuid.uuid4())  # for each call another; two processes never share one
        self.action = None
        self.asked = None  # our clock before the request was sent by which we asked for the lease
        self.claimed = self.claim_name = None
        self.asked_to_claim = False  # a Claim of ours may be stored, whether we had an answer or not

    @property
    def name(self):
        return self.action["metadata"]["name"]

    @property
    def uid(self):
        return self.action["metadata"]["uid"]

    @property
    def status(self):
        return self.action.get("status", {})

    @property
    def state(self):
        return self.status.get("state") or "Pending"

    def propose(self, action_type, arguments):
        """States "I want to do exactly this, and this process will"."""
        me = self.agent.whoami()
        self.action = self.agent.twin(action_type, arguments)
        if self.action:
            note(f"{self.name} proposes exactly this already and is {self.state}: nobody is asked twice")
            return
        item = {
            "apiVersion": API,
            "kind": "Action",
            "metadata": {},
            "spec": {
                "actionType": action_type,
                "arguments": arguments,
                "principal": {"agent": me},
                "claimID": self.claim_id,
                "leaseDurationSeconds": self.agent.lease,
            },
        }
        for name in self.agent.names(action_type, arguments):
            item["metadata"]["name"] = name
            self.asked = clock()
            try:
                status, answer = self.agent.create_or_read("actions", item)
            except NoAnswer:
                self.withdraw_unanswered(name)
                raise
            # 409 with our claimID is our own lost answer. Anything else is somebody else's proposal, and is never adopted.
            if status == 201 or status == 409 and answer.get("spec", {}).get("claimID") == self.claim_id:
                self.action = answer
                note(f"proposed {name}")
                return
            if status != 409:
                raise refusal(f"propose {action_type}", status, answer)
        raise Stopped(ERROR, "every name for the action is taken by another proposal")

    def withdraw_unanswered(self, name):
        """After a create whose fate is unknown: if the Action is there after all, nobody will execute it."""
        try:
            status, existing = self.agent.request("GET", self.agent.path("actions", name), window=5)
            if status == 200 and existing["spec"].get("claimID") == self.claim_id:
                self.action = existing
                self.report("NotExecuted", "the proposer gave up before it had an answer", None, window=5)
        except (NoAnswer, Stopped):
            pass  # an Action that nobody starts expires

    def read(self):
        """Reads the Action again. NoAnswer also if we may not, or no longer."""
        status, answer = self.agent.request("GET", self.agent.path("actions", self.name))
        if status == 404 or status == 200 and answer["metadata"]["uid"] != self.uid:
            raise Stopped(ERROR, f"{self.name} is gone: finished actions are deleted after a time, look in the receipts")
        if status != 200:
            raise NoAnswer(f"read {self.name}: {status}: {answer.get('message', '')}")
        self.action = answer

    def wait_admitted(self):
        """Waits until this process may execute, and claims when the Action asks for it."""
        try:
            self.follow()
        except NoAnswer as error:
            self.withdraw(str(error))

    def follow(self):
        deadline, said, pause = clock() + self.agent.timeout, None, 0.1
        while True:
            word = f"{self.state} {self.status.get('reason', '')}".strip()
            if word != said:
                note(f"{self.name} is {word}: {self.status.get('message', '')}")
                said, pause = word, 0.1
            if self.state == "Admitted":
                if self.status.get("execution", {}).get("claimID") != self.claim_id:
                    raise Stopped(WAITING, f"{self.name} was admitted for another process: it executes, not this one")
                return
            if self.state in TERMINAL:
                raise self.ended()
            if stopping.is_set() or clock() > deadline:
                self.withdraw("interrupted" if stopping.is_set() else "the time to wait is over")
            if self.state == "Claimable":
                self.claim()
            stopping.wait(pause)
            pause = min(1.5 * pause, 2)
            self.read()

    def claim(self):
        """States "I am still here and execute this now". It quotes the time from which it may be said, and is said once for it."""
        since = self.status["claimableTime"]
        if since == self.claimed:
            return self.check_claim()
        me = self.agent.whoami()
        item = {
            "apiVersion": API,
            "kind": "Claim",
            "metadata": {},
            "spec": {
                "actionRef": {"name": self.name, "uid": self.uid},
                "claimID": self.claim_id,
                "claimableTime": since,
                "claimant": me,
            },
        }
        self.asked, self.asked_to_claim = clock(), True
        for i in range(1, 100):
            item["metadata"]["name"] = f"{self.name}.{speaker(me)}" + (f".{i}" if i > 1 else "")
            status, answer = self.agent.create_or_read("claims", item)
            spec = answer.get("spec", {})
            own = [spec.get("claimID"), spec.get("claimableTime"), spec.get("actionRef", {}).get("uid")] == [self.claim_id, since, self.uid]
            if status == 201 or status == 409 and own:
                self.claimed, self.claim_name = since, item["metadata"]["name"]
                note(f"claimed {self.name}")
                return None
            if status != 409:
                error = refusal(f"claim {self.name}", status, answer)
                self.withdraw(str(error), error.code)
        self.withdraw("every name for a claim is taken")

    def check_claim(self):
        """Ends the wait if our Claim does not count and the Action, read after it, still asks for the same."""
        status, claim = self.agent.request("GET", self.agent.path("claims", self.claim_name))
        accepted = next((c for c in claim.get("status", {}).get("conditions", []) if c["type"] == "Accepted"), {})
        if status != 200 or accepted.get("status") != "False":
            return
        before = self.claimed
        self.read()
        if self.state == "Claimable" and self.status["claimableTime"] == before:
            code = {"AnotherWasFirst": WAITING, "NotTheAgent": REFUSED}.get(accepted["reason"], ERROR)
            raise Stopped(code, f"claim {self.claim_name} does not count: {accepted['reason']}: {accepted.get('message', '')}")

    def remaining(self):
        """Seconds that are left of the lease: the smaller of what the apiserver's clock leaves of it, and what ours leaves of its
        duration since we asked for it. The first is wrong if the clocks differ; the second is never too long, on any clock."""
        expires = datetime.strptime(self.status["execution"]["leaseExpirationTime"].split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S")
        by_server = expires.replace(tzinfo=timezone.utc).timestamp() - self.agent.now()
        by_duration = self.action["spec"]["leaseDurationSeconds"] - (clock() - self.asked)
        return min(by_server, by_duration)

    def execute(self, perform):
        """Waits, executes once, reports, and waits for the receipt. Returns the exit code."""
        self.wait_admitted()
        try:
            self.arguments = self.action["spec"].get("arguments", {})
            self.body = canonical(self.arguments)  # what is stored is executed, for that was hashed, and approved
            self.token = self.status["execution"].get("token", "")
            remaining = self.remaining()
        except (KeyError, ValueError) as error:
            self.withdraw(f"what is stored cannot be executed: {error!r}")
        if 3 * remaining < self.action["spec"]["leaseDurationSeconds"]:
            # Whoever starts late may still be at it when a person has allowed another attempt.
            self.withdraw(f"{remaining:.0f} s of the lease are left, less than a third", NOT_EXECUTED)
        if stopping.is_set():
            self.withdraw("interrupted")
        # From here on something may have happened. A signal is noted, and waits until it is reported.
        report = "Unknown", "the executor did not come back", None
        try:
            report = perform(self)
        except Exception as error:
            report = "Unknown", f"the executor failed: {error!r}", None
        finally:
            problem = self.report_or_why(*report)
        if problem:
            raise Stopped(UNKNOWN, f"the outcome of {self.name} is unknown, do not try again: {problem}")
        note(f"reported {report[0]} of {self.name}" + (f": {report[1]}" if report[1] else ""))
        return self.settled()

    def report_or_why(self, result, error, output):
        try:
            return self.report(result, error, output)
        except NoAnswer as problem:
            return f"{result} could not be reported: {problem}"

    def report(self, result, error, output, window=REPORT_WINDOW):
        """States how it ended. The name of an Outcome is a lock: whoever creates it ends the attempt. Returns None, or why this
        report does not count."""
        me = self.agent.whoami()
        lock = f"{self.uid}.{self.claim_id}.{speaker(me)}"
        item = {
            "apiVersion": API,
            "kind": "Outcome",
            "metadata": {"name": lock},
            "spec": {
                "actionRef": {"name": self.name, "uid": self.uid},
                "claimID": self.claim_id,
                "result": result,
                "error": error.encode()[:1024].decode("utf-8", "ignore"),
                "reporter": me,
            },
        }
        if output is not None:
            item["spec"]["output"] = output
        status, first = self.agent.create_or_read("outcomes", item, window, REFUSED_WINDOW)
        if status in (400, 413, 422) and output is not None:
            # What happened is worth more than what it printed.
            del item["spec"]["output"]
            status, first = self.agent.create_or_read("outcomes", item, window, REFUSED_WINDOW)
        if status == 201:
            return None
        if status != 409:
            return f"{result} was refused with {status}: {first.get('message', '')}"
        spec = first.get("spec", {})
        if spec.get("reason") == "LeaseLapsed":
            # The operator was first. What we know is left for whoever resolves the effect; it settles nothing.
            item["metadata"]["name"] = "late." + lock
            left, _ = self.agent.create_or_read("outcomes", item, window, REFUSED_WINDOW)
            stored = "" if left in (201, 409) else ", and the late report was refused"
            return "its lease was declared over before the report came" + stored
        if spec.get("reporter") != me:
            return f"an Outcome of {spec.get('reporter', 'somebody')} has the place of this report"
        if spec.get("result") != result:
            return f"{spec.get('result')} was reported before, and now {result}; the first report counts"
        return None  # our own lost answer

    def withdraw(self, why, code=ERROR):
        """States that this process will not execute, so that nobody waits for it, and ends."""
        # An Action that has waited is admitted by a Claim alone, and we made none: nothing of it depends on this process. So the
        # pod that replaces this one may claim it, and the people who were asked are not asked again: see twin.
        if self.agent.leave_waiting and self.state in ("AwaitingApproval", "Claimable") and not self.asked_to_claim:
            raise Stopped(WAITING, f"{why}; {self.name} goes on waiting")
        if self.action["spec"].get("claimID") != self.claim_id and not self.asked_to_claim:
            raise Stopped(code, f"{why}; nothing was executed")  # we have said nothing of it that anybody could wait for
        problem = self.report_or_why("NotExecuted", "the process stopped waiting: " + why, None)
        raise Stopped(code, f"{why}; nothing was executed" + (f", but that could not be said: {problem}" if problem else ""))

    def settled(self):
        """Waits for the receipt. Returns the exit code of how the Action ended."""
        deadline, pause = clock() + SETTLE_WINDOW, 0.05
        try:
            while not self.status.get("receiptRef"):
                if clock() > deadline:
                    raise NoAnswer("the operator has not settled it")
                time.sleep(pause)
                pause = min(1.5 * pause, 2)
                self.read()
        except (NoAnswer, Stopped) as error:
            raise Stopped(UNKNOWN, f"the end of {self.name} cannot be seen, do not try again: {error}") from None
        receipt = self.status["receiptRef"]
        note(f"{self.name} is {self.state}, receipt {receipt['name']} {receipt['hash']}")
        if self.end() == "Committed":
            return DONE
        raise self.ended()

    def end(self):
        """How the Action ended: its state, or of an observed one what it did."""
        return self.status.get("outcome") or "Ambiguous" if self.state == "Observed" else self.state

    def ended(self):
        """Why an Action that has ended is not this process's success, as an exit."""
        reason = self.status.get("reason", "")
        blocked = {"duplicate": COMMITTED_ALREADY, "in_progress": WAITING, "ambiguous": UNKNOWN}
        codes = {"Committed": COMMITTED_ALREADY, "Failed": NOT_EXECUTED, "Denied": DENIED, "Expired": EXPIRED}
        code = blocked.get(reason, ERROR) if self.state == "Blocked" else codes.get(self.end(), UNKNOWN)
        return Stopped(code, f"{self.name} ended {self.state} {reason}: {self.status.get('message', '')}")


def read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def by_admission(answer):
    """An admission policy refuses with the code its author chose; its name is in the message."""
    return "ValidatingAdmissionPolicy '" in answer.get("message", "")


def refusal(what, status, answer):
    refused = status in (401, 403) or by_admission(answer)
    return Stopped(REFUSED if refused else ERROR, f"{what}: {status}: {answer.get('message', '')}")


# The work


class Provider:
    """Executes by one HTTP request, and says what can be proved of it."""

    def __init__(self, environ):
        self.url = urllib.parse.urlsplit(environ.get("PROVIDER_URL", ""))
        if self.url.scheme not in ("http", "https") or not self.url.hostname:
            raise ValueError("set PROVIDER_URL to where the arguments are to be sent, such as https://refunds.example.com/v1/refunds")
        self.port = self.url.port
        self.tls = ssl.create_default_context(cafile=environ.get("PROVIDER_CA")) if self.url.scheme == "https" else None
        self.token_file = environ.get("PROVIDER_TOKEN_FILE")
        self.timeout = int(environ.get("PROVIDER_TIMEOUT_SECONDS", "20"))
        self.not_executed = {int(status) for status in environ.get("PROVIDER_NOT_EXECUTED", "").replace(",", " ").split()}

    def perform(self, call):
        """Sends the stored arguments once: result, error text, output.

        NotExecuted frees the effect for another attempt, so it needs proof: the connection was our own and fresh, and it failed
        before one byte of the request was offered to it. No redirect is followed, no proxy is asked, nothing is repeated here."""
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if call.token:
            headers["Idempotency-Key"] = call.token
        try:
            if self.token_file:
                headers["Authorization"] = "Bearer " + read_file(self.token_file)
        except OSError as error:
            return "NotExecuted", f"the provider was not called: {error}", None
        timeout = min(self.timeout, call.remaining())
        if self.tls:
            connection = http.client.HTTPSConnection(self.url.hostname, self.port, timeout=timeout, context=self.tls)
        else:
            connection = http.client.HTTPConnection(self.url.hostname, self.port, timeout=timeout)
        connection.auto_open = 0  # a second connection would have no proof
        try:
            connection.connect()
        except OSError as error:
            return "NotExecuted", f"never connected to the provider: {error}", None
        # A server that sends a byte now and then would keep each read alive, but not this.
        watchdog, connected = threading.Timer(timeout, hang_up, [connection.sock]), clock()
        try:
            watchdog.start()
        except RuntimeError as error:  # a limit of threads or memory
            connection.close()
            return "NotExecuted", f"the provider was not called: {error}", None
        try:
            target = (self.url.path or "/") + ("?" + self.url.query if self.url.query else "")
            connection.request("POST", target, call.body, headers)
            response = connection.getresponse()
            text = response.read(MAX_ANSWER)
            # Where nobody says how long an answer is, one that we cut off looks like one that is whole.
            if response.length or len(text) == MAX_ANSWER or clock() - connected >= timeout:
                return "Unknown", f"the provider answered {response.status}, and the end of its answer did not come", None
            if response.status in self.not_executed:
                return "NotExecuted", f"the provider answered {response.status}, by which it promises that it did nothing", None
            if response.status not in (200, 201):
                return "Unknown", f"the provider answered {response.status}", None
            return "Committed", "", storable(text)
        except (OSError, http.client.HTTPException) as error:
            return "Unknown", f"the request was sent and not answered: {error!r}", None
        finally:
            watchdog.cancel()
            connection.close()


def hang_up(connected):
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def storable(text):
    """What the provider answered, if it can be stored exactly; else nothing. A report must not fail over what it carries along."""
    try:
        value = parse(text) if len(text) <= MAX_OUTPUT else None
        return value if len(canonical(value)) <= MAX_OUTPUT else None
    except (ValueError, RecursionError):
        return None


def work(path):
    """The items of a file, by their canonical form; none if it cannot be read."""
    try:
        items = parse(read_file(path))
        if not all(isinstance(item["actionType"], str) and isinstance(item["arguments"], dict) for item in items):
            raise ValueError("an item is not a type and arguments")
        return {canonical(item): item for item in items}
    except (OSError, ValueError, TypeError, KeyError) as error:
        note(f'{path} is no list of {{"actionType": ..., "arguments": {{...}}}}: {error!r}')
        return {}


def serve(agent, path, perform):
    """Executes each item of a file, whatever becomes of this process: nothing is remembered here, for an effect that is committed
    refuses to be done again. The file may change; items that are new are taken up."""
    done, later, running, delays = set(), {}, {}, {}
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        while not stopping.is_set():
            for key, item in work(path).items():
                if key not in done and key not in running and later.get(key, 0) < clock():
                    running[key] = pool.submit(agent.run, item["actionType"], item["arguments"], perform)
            for key, future in list(running.items()):
                if not future.done():
                    continue
                del running[key]
                if future.exception():
                    note(f"{key.decode()}: {future.exception()!r}")
                code = ERROR if future.exception() else future.result()
                if code in (ERROR, WAITING, NOT_EXECUTED, REFUSED):
                    # Nothing was executed here. Another attempt is another Action, by the same rules.
                    delays[key] = min(2 * delays.get(key, 2.5), 300)
                    later[key] = clock() + delays[key]
                else:
                    done.add(key)  # committed, denied or expired; or unknown, which only a person may free
            stopping.wait(1)
    return DONE


def main(arguments):
    if len(arguments) == 2 and arguments[0] in ("--effect-name", "--speaker"):
        print((effect_name if arguments[0] == "--effect-name" else speaker)(arguments[1]))
        return DONE
    if len(arguments) != 2:
        note("usage: agent.py TYPE ARGUMENTS | --serve FILE | --effect-name KEY | --speaker USERNAME")
        return USAGE
    try:
        agent, provider = Agent(os.environ), Provider(os.environ)
        proposed = {} if arguments[0] == "--serve" else parse(arguments[1])
        if not isinstance(proposed, dict):
            raise ValueError("ARGUMENTS is a JSON object")
    except (OSError, ValueError) as error:
        note(str(error))
        return USAGE
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if arguments[0] == "--serve":
        agent.leave_waiting = True
        return serve(agent, arguments[1], provider.perform)
    return agent.run(arguments[0], proposed, provider.perform)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
