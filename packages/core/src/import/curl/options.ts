/** The options of a curl command that say what is sent; those that say how curl behaves are left out. */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Notes } from "../notes.ts";
import { splitWords } from "./words.ts";

/** A piece of a body. */
export type DataPart =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "pair"; readonly name: string; readonly value: string }
  | { readonly kind: "file" };

export interface FormPart {
  readonly name: string;
  /** Absent for files, whose content is not here. */
  readonly value?: string;
  readonly isFile: boolean;
  readonly mediaType?: string;
}

export interface CurlCommand {
  readonly url: string;
  readonly method: string | undefined;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly data: readonly DataPart[];
  readonly form: readonly FormPart[];
  readonly isJson: boolean;
  /** Data goes to the query (`-G`). */
  readonly isGet: boolean;
  readonly isUpload: boolean;
  readonly user: string | undefined;
  readonly timeoutMs: number | undefined;
}

interface Collected {
  readonly urls: string[];
  method: string | undefined;
  readonly headers: [string, string][];
  readonly data: DataPart[];
  readonly form: FormPart[];
  isJson: boolean;
  isGet: boolean;
  isUpload: boolean;
  user: string | undefined;
  timeoutMs: number | undefined;
}

function nothingYet(): Collected {
  const flags = { isJson: false, isGet: false, isUpload: false };
  return {
    ...flags,
    urls: [],
    method: undefined,
    headers: [],
    data: [],
    form: [],
    user: undefined,
    timeoutMs: undefined,
  };
}

type Take = (into: Collected, value: string, notes: Notes) => void;

/** Options with a value that matters. */
const taking: Readonly<Record<string, Take>> = {
  request: (into, value) => void (into.method = value.toUpperCase()),
  url: (into, value) => void into.urls.push(value),
  header: takeHeader,
  data: (into, value, notes) => takeData(into, value, notes),
  "data-ascii": (into, value, notes) => takeData(into, value, notes),
  "data-binary": (into, value, notes) => takeData(into, value, notes),
  "data-raw": (into, value) => void into.data.push({ kind: "text", text: value }),
  "data-urlencode": takeEncoded,
  json: (into, value, notes) => {
    into.isJson = true;
    takeData(into, value, notes);
  },
  form: takeForm,
  "form-string": (into, value) => void into.form.push({ ...splitPair(value), isFile: false }),
  user: (into, value) => void (into.user = value),
  "oauth2-bearer": (into, value) => void into.headers.push(["Authorization", `Bearer ${value}`]),
  cookie: takeCookie,
  "user-agent": (into, value) => void into.headers.push(["User-Agent", value]),
  referer: (into, value) => void into.headers.push(["Referer", value]),
  "upload-file": (into) => {
    into.isUpload = true;
    into.data.push({ kind: "file" });
  },
  "max-time": (into, value) => {
    const seconds = Number(value);
    if (seconds > 0 && seconds <= 840) into.timeoutMs = Math.max(1, Math.round(seconds * 1_000));
  },
};

/** Flags that matter. */
const flags: Readonly<Record<string, (into: Collected, notes: Notes) => void>> = {
  get: (into) => void (into.isGet = true),
  head: (into) => void (into.method = "HEAD"),
  insecure: (_into, notes) => notes.add("'--insecure' is not kept: certificates are always checked."),
  digest: (_into, notes) => notes.add("'--digest' is not supported; the credentials are sent as with '--basic'."),
  ntlm: (_into, notes) => notes.add("'--ntlm' is not supported; the credentials are sent as with '--basic'."),
  netrc: (_into, notes) => notes.add("'--netrc' is not read; give the credentials as a header or with '-u'."),
};

/** How curl itself behaves: no part of the tool. */
const ignoredFlags = words(`silent show-error location location-trusted include verbose compressed fail
  fail-with-body fail-early progress-bar no-buffer http1.0 http1.1 http2 http2-prior-knowledge http3 tlsv1
  tlsv1.2 tlsv1.3 ipv4 ipv6 basic anyauth globoff no-keepalive tcp-nodelay remote-name remote-header-name
  path-as-is styled-output no-progress-meter parallel create-dirs raw disable junk-session-cookies`);
const ignoredValues = words(`output retry retry-delay retry-max-time connect-timeout write-out dump-header
  cookie-jar max-redirs limit-rate keepalive-time trace trace-ascii stderr max-filesize speed-time speed-limit
  output-dir`);
/** They change where or how the request goes, which no tool can do. */
const refusedValues = words(`proxy proxy-user cert key cacert capath resolve connect-to interface unix-socket
  aws-sigv4 config socks5 socks5-hostname proto dns-servers request-target pass cert-type key-type`);

function words(text: string): ReadonlySet<string> {
  return new Set(text.split(/\s+/));
}

const shortNames: Readonly<Record<string, string>> = {
  X: "request",
  H: "header",
  d: "data",
  F: "form",
  u: "user",
  b: "cookie",
  A: "user-agent",
  e: "referer",
  T: "upload-file",
  m: "max-time",
  G: "get",
  I: "head",
  k: "insecure",
  n: "netrc",
  s: "silent",
  S: "show-error",
  L: "location",
  i: "include",
  v: "verbose",
  f: "fail",
  N: "no-buffer",
  g: "globoff",
  O: "remote-name",
  J: "remote-header-name",
  "#": "progress-bar",
  "0": "http1.0",
  "4": "ipv4",
  "6": "ipv6",
  q: "disable",
  j: "junk-session-cookies",
  Z: "parallel",
  o: "output",
  w: "write-out",
  D: "dump-header",
  c: "cookie-jar",
  x: "proxy",
  U: "proxy-user",
  E: "cert",
  K: "config",
};

/** @throws GatewayError `invalid_request` naming the option that is not understood; values are not repeated */
export function parseCurl(command: string, notes: Notes): CurlCommand {
  const words = splitWords(command, notes);
  const start = words.findIndex((word) => /^(?:.*[/\\])?curl(?:\.exe)?$/i.test(word));
  const isAssignment = (word: string): boolean => /^[A-Za-z_]\w*=/.test(word) || word === "sudo";
  if (start < 0 || !words.slice(0, start).every(isAssignment)) throw invalid("must begin with the word curl");
  const into = nothingYet();
  readWords(words.slice(start + 1), into, notes);
  const [url, ...others] = into.urls;
  if (url === undefined) throw invalid("names no URL");
  if (others.length > 0) notes.add("Only the first URL is read.");
  return { ...into, url };
}

function readWords(words: readonly string[], into: Collected, notes: Notes): void {
  const waiting = words.toReversed();
  for (let word = waiting.pop(); word !== undefined; word = waiting.pop()) {
    if (word === "--next" || word === "-:") {
      notes.add("Only the first request is read; what follows '--next' is left out.");
      return;
    }
    if (word === "--" || word === "-" || !word.startsWith("-")) {
      if (word !== "--") into.urls.push(word);
    } else if (word.startsWith("--")) {
      const sign = word.indexOf("=");
      const name = sign < 0 ? word.slice(2) : word.slice(2, sign);
      if (sign >= 0) waiting.push(word.slice(sign + 1));
      readOption(name, `--${name}`, { waiting, into, notes });
    } else {
      readShort(word.slice(1), { waiting, into, notes });
    }
  }
}

interface Reading {
  /** The next word is the last one: taking the first of a long list moves all others. */
  readonly waiting: string[];
  readonly into: Collected;
  readonly notes: Notes;
}

/** `-sSL`, `-XPOST`, `-H value`. */
function readShort(letters: string, reading: Reading): void {
  for (let at = 0; at < letters.length; at += 1) {
    const letter = letters.charAt(at);
    const name = shortNames[letter];
    if (name === undefined) throw invalid(`has the option '-${letter}', which is not known; leave it out`);
    const rest = letters.slice(at + 1);
    if (takesValue(name)) {
      if (rest !== "") reading.waiting.push(rest);
      readOption(name, `-${letter}`, reading);
      return;
    }
    readOption(name, `-${letter}`, reading);
  }
}

function takesValue(name: string): boolean {
  return Object.hasOwn(taking, name) || ignoredValues.has(name) || refusedValues.has(name);
}

function readOption(name: string, spelling: string, { waiting, into, notes }: Reading): void {
  if (takesValue(name)) {
    const value = waiting.pop();
    if (value === undefined) throw invalid(`has the option '${spelling}' without a value`);
    if (refusedValues.has(name)) notes.add(`'${spelling}' is not kept: a tool cannot do that.`);
    else taking[name]?.(into, value, notes);
    return;
  }
  const flag = Object.hasOwn(flags, name) ? flags[name] : undefined;
  if (flag !== undefined) flag(into, notes);
  else if (!ignoredFlags.has(name) && !ignoredFlags.has(name.replace(/^no-/, "")))
    throw invalid(`has the option '${spelling.slice(0, 60)}', which is not known; leave it out`);
}

function takeHeader(into: Collected, value: string, notes: Notes): void {
  if (value.startsWith("@")) {
    notes.add("Headers are not read from files.");
    return;
  }
  const match = /^\s*([^:;\s]+)\s*[:;]\s*([^]*)$/.exec(value);
  if (match === null) throw invalid("has a header without a colon");
  into.headers.push([match[1] ?? "", (match[2] ?? "").trim()]);
}

function takeData(into: Collected, value: string, notes: Notes): void {
  if (!value.startsWith("@")) {
    into.data.push({ kind: "text", text: value });
    return;
  }
  notes.add("Files are not read; what the file held is to be given with each call.");
  into.data.push({ kind: "file" });
}

/** `content`, `=content`, `name=content`, `name@file`. */
function takeEncoded(into: Collected, value: string, notes: Notes): void {
  const match = /^([^=@]*)([=@])([^]*)$/.exec(value);
  if (match === null) {
    into.data.push({ kind: "text", text: encodeURIComponent(value) });
  } else if (match[2] === "@") {
    notes.add("Files are not read; what the file held is to be given with each call.");
    into.data.push({ kind: "file" });
  } else if (match[1] === "") {
    into.data.push({ kind: "text", text: encodeURIComponent(match[3] ?? "") });
  } else {
    into.data.push({ kind: "pair", name: match[1] ?? "", value: match[3] ?? "" });
  }
}

/** `name=value`, `name=@file;type=image/png`, `name=<file`. */
function takeForm(into: Collected, value: string, notes: Notes): void {
  const { name, value: content } = splitPair(value);
  if (/^[@<]/.test(content)) {
    notes.add("Files are not read; what the file held is to be given with each call.");
    const mediaType = /;type=([\w.+-]+\/[\w.+-]+)/.exec(content)?.[1];
    into.form.push({ name, isFile: content.startsWith("@"), ...(mediaType === undefined ? {} : { mediaType }) });
    return;
  }
  const typed = /^([^]*?);type=([\w.+-]+\/[\w.+-]+)$/.exec(content);
  const text = (typed?.[1] ?? content).replace(/^"([^]*)"$/, "$1");
  into.form.push({ name, value: text, isFile: false, ...(typed?.[2] === undefined ? {} : { mediaType: typed[2] }) });
}

function splitPair(text: string): { readonly name: string; readonly value: string } {
  const sign = text.indexOf("=");
  return sign < 0 ? { name: text, value: "" } : { name: text.slice(0, sign), value: text.slice(sign + 1) };
}

function takeCookie(into: Collected, value: string, notes: Notes): void {
  if (value.includes("=")) into.headers.push(["Cookie", value]);
  else notes.add("Cookies are not read from files.");
}

function invalid(problem: string): GatewayError {
  return new GatewayError("invalid_request", `'curl' ${problem}.`, { param: "curl" });
}
