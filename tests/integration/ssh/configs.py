# SPDX-License-Identifier: Apache-2.0
"""ssh configuration files as people write them, made from pieces; and what `ssh -G` says that they mean.

`meaning()` is an independent reading of that output: it is compared with what horarun would connect with."""

import os
import pwd
import random
import socket
import subprocess

HOSTS = ["gpu1", "GPU1", "node7.lab.example", "10.1.2.3", "eve@login", "db-01"]

# A piece stands alone in a file, and with others in random order. {tmp} is a folder of the test's.
PIECES = (
    """
Host gpu*
  HostName %h.cluster.example
  User ann
  Port 2222
---
Host *
  User bob
  IdentityFile {tmp}/keys/%h-%r
  IdentityFile {tmp}/keys/common
---
Host gpu1 !gpu1
  User never
---
Host !db-* *
  Port 2022
---
Host !gpu1
  User never-matches-a-block-of-negations
---
Match host gpu1
  User matched
---
Match originalhost GPU1
  Port 7
---
Match user eve
  Port 8
---
Match user EVE
  Port 9
---
Match exec "test %h = gpu1"
  HostName exec-%h
---
Match host gpu1 exec "exit 1"
  User wrong
---
Match exec true host db-*
  IdentityFile {tmp}/keys/db
---
Match final host *.cluster.example
  User final
---
Match canonical all
  Port 99
---
Match all
  ConnectTimeout 1m30s
---
HostName %h.late
Match host *.late
  User late
---
ConnectTimeout 3s
---
ConnectTimeout 0
---
Ciphers -aes256-ctr,aes128-ctr
---
Ciphers ^aes256-gcm@openssh.com
---
Ciphers +aes128-cbc
MACs -*sha1*,umac-64*
---
Ciphers aes128-ctr
MACs hmac-sha2-256
---
KexAlgorithms curve25519-sha256,ecdh-sha2-nistp256
---
KexAlgorithms -sntrup*,mlkem*
---
KexAlgorithms +diffie-hellman-group1-sha1
HostKeyAlgorithms +ssh-rsa
PubkeyAcceptedAlgorithms +ssh-rsa
---
HostKeyAlgorithms ssh-ed25519,rsa-sha2-512
---
PubkeyAcceptedKeyTypes -rsa*
---
RequiredRSASize 2048
---
IdentityFile none
---
IdentitiesOnly true
IdentityFile {tmp}/keys/only-public
---
IdentityFile "{tmp}/keys/with blank"
---
IdentityFile '{tmp}/keys/with blank'
IdentityFile {tmp}/keys/with\\ blank
---
IdentityFile ${{HORA_KEYS}}/common
IdentityAgent ${{HORA_KEYS}}/agent
---
IdentityAgent $HORA_AGENT
---
IdentityAgent SSH_AUTH_SOCK
---
IdentityAgent none
---
IdentityFile ~/.ssh/%i-%L-%l-%u-%n-%p-%%-%d
---
IdentityFile {tmp}/keys/%k-%j
HostKeyAlias cluster
---
IdentityFile {tmp}/keys/%C
---
HostKeyAlias %h-Key
---
UserKnownHostsFile {tmp}/known_%k /dev/null
GlobalKnownHostsFile none
---
UserKnownHostsFile none
---
UserKnownHostsFile "{tmp}/known hosts" {tmp}/known
---
UserKnownHostsFile {tmp}/%%a
---
UserKnownHostsFile a none
---
StrictHostKeyChecking accept-new
HashKnownHosts yes
---
StrictHostKeyChecking off
---
StrictHostKeyChecking yes
CheckHostIP no
---
RevokedHostKeys {tmp}/revoked
---
ProxyJump none
ProxyCommand nc -x proxy:1080 %h %p
---
ProxyJump eve@gw:2200,inner
---
Host gpu*
  ProxyJump bastion
Host bastion
  ProxyJump none
---
ProxyCommand none
ProxyJump gw
---
ProxyCommand /bin/connect --name %n --user %r %h:%p # not a comment
---
ProxyCommand nc %%h %h
---
PubkeyAuthentication false
---
DSAAuthentication no
---
PreferredAuthentications password,keyboard-interactive
---
PreferredAuthentications publickey
GSSAPIAuthentication yes
---
GSSAPIAuthentication yes
GSSAPIDelegateCredentials yes
---
HostbasedAuthentication yes
---
CertificateFile {tmp}/keys/common-cert.pub
---
CertificateFile {tmp}/keys/missing-cert.pub
---
IdentityFile {tmp}/keys/certified
---
PKCS11Provider /usr/lib/p11.so
---
KnownHostsCommand /bin/echo %H
---
VerifyHostKeyDNS yes
---
ForwardAgent yes
---
ForwardX11 yes
---
LocalForward 8080 localhost:80
RemoteForward 9090 localhost:90
---
RemoteForward 9090 localhost:90
ClearAllForwardings yes
---
DynamicForward 1080
ExitOnForwardFailure yes
---
PermitLocalCommand yes
LocalCommand touch {tmp}/never
---
LocalCommand touch {tmp}/never
---
RemoteCommand tmux attach
---
RequestTTY force
EscapeChar none
---
SessionType none
---
SendEnv LANG LC_*
SendEnv -LC_ALL
---
SetEnv A=1
SetEnv B=2
---
ControlMaster auto
ControlPath {tmp}/master-%C
ControlPersist 10m
---
ControlMaster no
ControlPath none
---
ServerAliveInterval 30
ServerAliveCountMax 4
TCPKeepAlive no
---
Compression yes
AddressFamily inet
---
AddressFamily inet6
BindAddress ::1
---
BindAddress head.example
---
BindInterface eth0
IPQoS none
---
ConnectionAttempts 4
---
RekeyLimit 1G 1h
---
Tunnel yes
---
AddKeysToAgent yes
UpdateHostKeys yes
VisualHostKey yes
LogLevel QUIET
---
NoHostAuthenticationForLocalhost yes
---
StdinNull yes
ForkAfterAuthentication yes
---
IgnoreUnknown Sparkle,Use*
Sparkle yes
UseKeychain yes
---
Include {tmp}/included/*.conf
---
Host db-*
  Include {tmp}/included/user.conf
---
Include {tmp}/included/nothing-here
Include "{tmp}/included/user.conf"
---
Port=2200
User = "carl"
---
	Port	2201
	USER dan
# a comment
Compression no # and one behind
---
Port 0
---
User two words
---
NoSuchKeyword yes
---
Host gpu1
User 'it''s'
---
HostName 192.0.2.7
Host *
  HostName other.example
""".replace("\\\\", "\\")
    .strip("\n")
    .split("\n---\n")
)

# Settings by which libssh cannot connect, if they differ from what ssh says without a configuration.
BY_PROGRAM = [
    "bindaddress",
    "bindinterface",
    "revokedhostkeys",
    "checkhostip",
    "connectionattempts",
    "dynamicforward",
    "forwardagent",
    "gssapidelegatecredentials",
    "gssapikeyexchange",
    "hostbasedauthentication",
    "knownhostscommand",
    "localforward",
    "nohostauthenticationforlocalhost",
    "permitlocalcommand",
    "pkcs11provider",
    "rekeylimit",
    "remotecommand",
    "remoteforward",
    "securitykeyprovider",
    "sessiontype",
    "setenv",
    "tunnel",
    "verifyhostkeydns",
]
# Of one command without a terminal.
WITHOUT_EFFECT = [
    "addkeystoagent",
    "batchmode",
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizehostname",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "casignaturealgorithms",
    "clearallforwardings",
    "controlmaster",
    "controlpersist",
    "enableescapecommandline",
    "enablesshkeysign",
    "escapechar",
    "exitonforwardfailure",
    "fingerprinthash",
    "forkafterauthentication",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "gssapikexalgorithms",
    "gssapirenewalforcesrekey",
    "gssapitrustdns",
    "host",
    "hostbasedacceptedalgorithms",
    "ignoreunknown",
    "ipqos",
    "kbdinteractiveauthentication",
    "localcommand",
    "loglevel",
    "logverbose",
    "numberofpasswordprompts",
    "obscurekeystroketiming",
    "passwordauthentication",
    "permitremoteopen",
    "requesttty",
    "sendenv",
    "serveralivecountmax",
    "serveraliveinterval",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "syslogfacility",
    "tcpkeepalive",
    "tunneldevice",
    "updatehostkeys",
    "visualhostkey",
    "warnweakcrypto",
    "xauthlocation",
]
# Compared one by one below.
APPLIED = [
    "addressfamily",
    "certificatefile",
    "ciphers",
    "compression",
    "connecttimeout",
    "controlpath",
    "globalknownhostsfile",
    "gssapiauthentication",
    "hashknownhosts",
    "hostkeyalgorithms",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "kexalgorithms",
    "macs",
    "port",
    "preferredauthentications",
    "proxycommand",
    "proxyjump",
    "pubkeyacceptedalgorithms",
    "pubkeyauthentication",
    "requiredrsasize",
    "stricthostkeychecking",
    "user",
    "userknownhostsfile",
]

ENVIRONMENT = {"HORA_KEYS": "/tmp/hora keys", "HORA_AGENT": "/run/other-agent", "SSH_AUTH_SOCK": "/run/agent"}


def files(tmp, count, seed):
    """The texts of `count` files: each piece alone, then several in random order and blocks."""
    pieces = [piece.format(tmp=tmp) for piece in PIECES]
    yield from pieces[:count]
    chance = random.Random(seed)
    blocks = ["Host *", "Host gpu* db-*", "Match all", "Match host *.example", "Host eve* login", "Match user ann"]
    for _ in range(count - len(pieces)):
        text = []
        # Lines that end in an error are rare: they hide all others.
        for piece in chance.sample(pieces, chance.randint(2, 6)):
            rare = any(word in piece for word in ("NoSuch", "two words", "Port 0", "Remote", "none"))
            if rare and chance.random() < 0.8:
                continue
            if chance.random() < 0.5:
                text.append(chance.choice(blocks))
            text.append(piece)
        yield "\n".join(text) + "\n"


def prepare(tmp):
    """The files that the pieces name."""
    for folder in ("keys", "included"):
        os.makedirs(f"{tmp}/{folder}", exist_ok=True)
    for name in ("common", "with blank", "certified", "certified-cert.pub", "only-public.pub", "common-cert.pub", "db"):
        with open(f"{tmp}/keys/{name}", "w") as file:
            file.write("a key\n")
    with open(f"{tmp}/included/user.conf", "w") as file:
        file.write("User included\n")
    with open(f"{tmp}/included/more.conf", "w") as file:
        file.write(f"Host gpu1\n  IdentityFile {tmp}/keys/common\nMatch all\n  Port 2299\n")


def ask_ssh(*arguments, ssh="ssh"):
    """What ssh says of a host; None and its words when it refuses."""
    done = subprocess.run(
        [ssh, "-G", "-o", "BatchMode=yes", *arguments, "/bin/sh"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **ENVIRONMENT},
    )
    if done.returncode != 0:
        return None, done.stderr.strip()
    said = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key.lower(), []).append(value)
    return said, ""


class Tokens:
    """Fills in the tokens of OpenSSH's manual; `unknown` when only ssh could."""

    def __init__(self, name, said):
        me = pwd.getpwuid(os.getuid())
        host = socket.gethostname()
        self.unknown = False
        self.home = me.pw_dir
        self.values = {
            "%": "%", "h": said["hostname"][0], "n": name, "p": said["port"][0], "r": said["user"][0],
            "u": me.pw_name, "d": me.pw_dir, "i": str(os.getuid()), "l": host, "L": host.split(".")[0],
            "k": said.get("hostkeyalias", [name])[0], "j": said.get("proxyjump", [""])[0],
        }  # fmt: skip

    def fill(self, text, allowed="%hnprudilLkj", variables=True):
        if variables and (text == "~" or text.startswith("~/")):
            return self.home + self.fill(text[1:], allowed)
        out, at = "", 0
        while at < len(text):
            if text[at] == "%":
                at += 1
                token = text[at : at + 1]
                if token == "" or token not in allowed:
                    self.unknown = True
                else:
                    out += self.values[token]
            elif variables and text.startswith("${", at):
                end = text.index("}", at)
                out += ENVIRONMENT.get(text[at + 2 : end], "")
                at = end
            else:
                out += text[at]
            at += 1
        return out


def reordered(said, defaults, key, ours):
    value = said[key][0]
    if value != defaults[key][0]:
        return value
    return ",".join(name for name in ours.split(",") if name in value.split(",")) or value


OURS = {
    "kexalgorithms": "ecdh-sha2-nistp256,curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group14-sha256,diffie-hellman-group16-sha512,"
    "diffie-hellman-group18-sha512,diffie-hellman-group-exchange-sha256",
    "ciphers": "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,"
    "aes256-ctr",
}


def meaning(name, said, defaults, config):
    """What a connection to `name` is made with, in the words of hora-transport-probe --resolve."""
    tokens = Tokens(name, said)
    one = {key: values[0] for key, values in said.items()}
    yes = lambda key: one.get(key) in ("yes", "true")  # noqa: E731
    unknown = set(said) - set(BY_PROGRAM) - set(WITHOUT_EFFECT) - set(APPLIED)
    assert not [key for key in unknown if said[key] != defaults.get(key)], f"a keyword without a class: {unknown}"

    program = any(said.get(key, []) not in (defaults.get(key, []), ["none"]) for key in BY_PROGRAM)
    program |= one.get("sessiontype") == "none"
    if yes("clearallforwardings"):
        rest = [key for key in BY_PROGRAM if key not in ("localforward", "remoteforward", "dynamicforward")]
        program = any(said.get(key, []) not in (defaults.get(key, []), ["none"]) for key in rest)
        program |= one.get("sessiontype") == "none"

    found, missing = [], []
    for identity in said.get("identityfile", []):
        if identity == "none":
            continue
        path = tokens.fill(identity)
        program |= os.path.exists(path + "-cert.pub")
        if os.path.isfile(path) or os.path.isfile(path + ".pub"):
            found.append(path)
        elif said["identityfile"] != defaults["identityfile"]:
            missing.append(path)
    for certificate in said.get("certificatefile", []):
        program |= certificate != "none" and os.path.isfile(tokens.fill(certificate))

    agent = one.get("identityagent", "SSH_AUTH_SOCK")
    if agent == "SSH_AUTH_SOCK" or (agent.startswith("$") and not agent.startswith("${")):
        agent = ENVIRONMENT.get(agent.lstrip("$"), "")
    else:
        agent = "" if agent == "none" else tokens.fill(agent)

    methods = one.get("preferredauthentications", "gssapi-with-mic,publickey").split(",")
    forbidden = "" if "publickey" in methods else "PreferredAuthentications " + ",".join(methods)
    if one["pubkeyauthentication"] in ("no", "false"):
        forbidden = "PubkeyAuthentication no"
    program |= forbidden != "" and yes("gssapiauthentication") and "gssapi-with-mic" in methods

    known = {}
    for key in ("userknownhostsfile", "globalknownhostsfile"):
        known[key] = [word for word in one[key].split(" ") if word not in ("", "none")]
        program |= any(not word.startswith("/") for word in known[key])

    proxy, command, jump = [], one.get("proxycommand", "none"), one.get("proxyjump", "none")
    if command != "none":
        shell = os.environ.get("SHELL") or "/bin/sh"
        norc = ["--norc"] if shell.endswith("/bash") else []
        proxy = [shell, *norc, "-c", "exec " + tokens.fill(command, "%hnprk", variables=False)]
    elif jump != "none":
        *before, last = jump.split(",")
        hop, _, port = last.partition(":")
        proxy = ["ssh", "-o", "BatchMode=yes", "-F", config] + (["-J", ",".join(before)] if before else [])
        proxy += (["-p", port] if port else []) + ["-W", f"[{one['hostname']}]:{one['port']}", "--", hop]

    checking = {"accept-new": 1, "false": 2, "no": 2, "off": 2}.get(one["stricthostkeychecking"], 0)
    timeout = one["connecttimeout"]
    return {
        "address": one["hostname"],
        "port": int(one["port"]),
        "user": one["user"],
        "program": bool(program or tokens.unknown),
        "timeout": 0 if timeout == "none" else int(timeout),
        "proxy": proxy,
        "family": "" if one["addressfamily"] == "any" else one["addressfamily"],
        "compression": int(yes("compression")),
        "files": found,
        "missing": missing,
        "agent": agent,
        "identities_only": int(yes("identitiesonly")),
        "forbidden": forbidden,
        "known_as": one.get("hostkeyalias", one["hostname"]),
        "alias": int("hostkeyalias" in one),
        "checking": checking,
        "known_hosts": known["userknownhostsfile"] + known["globalknownhostsfile"],
        "user_files": len(known["userknownhostsfile"]),
        "hash": int(yes("hashknownhosts")),
        "kex": reordered(said, defaults, "kexalgorithms", OURS["kexalgorithms"]),
        "ciphers": reordered(said, defaults, "ciphers", OURS["ciphers"]),
        "macs": one["macs"],
        "host_keys": one["hostkeyalgorithms"],
        "public_keys": one["pubkeyacceptedalgorithms"],
        "rsa_bits": int(one["requiredrsasize"]),
    }
