/**
 * What is plainly a secret, by its own form or by what it is called. Definitions and names of credentials are shown to
 * callers and models and stand in addresses and records, so a secret that was written there must not get that far.
 */

/** Marks that issuers put before their tokens, our own keys among them; what follows is no words. */
const marks =
  /^(?:(?:sk|pk|rk)[-_]|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|shp(?:at|ss)_|SG\.|ya29\.|ty_|gsk_|xai-|pplx-|tvly-|figd_|r8_)/;
const jumble = /(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16}/;
/** Forms that are theirs alone. */
const forms =
  /^glpat-(?=[\w-]*[A-Z]|(?:[a-z_-]*\d){3})[\w-]{20,}$|^ty_(?:operator|[a-z0-9]{8,})_(?=[\w-]*[A-Z])[\w-]{32,}$|^(?:AKIA|ASIA)[A-Z0-9]{16}$|^AIza[\w-]{30,40}$|^\d{6,12}:[\w-]{30,}$|^eyJ[\w-]{10,}\.[\w-]{10,}/;

/** Of a longer one the beginning tells as much: the jumble is looked for from each of its characters. */
const longestToken = 512;

export function isToken(text: string): boolean {
  return forms.test(text) || (marks.test(text) && jumble.test(text.slice(0, longestToken)));
}

const hexadecimal = /^(?:[0-9a-f]{32,}|[0-9A-F]{32,})$/;

/** Is it a token, or 32 and more letters of both cases and digits in a jumble? Names that people give have words. */
export function looksLikeSecret(text: string): boolean {
  if (isToken(text) || hexadecimal.test(text)) return true;
  return (text.match(/[A-Za-z0-9]{32,}/g) ?? []).some(
    (run) => /[a-z]/.test(run) && /[A-Z]/.test(run) && (run.match(/\d+/g)?.length ?? 0) >= 3,
  );
}

// What secrets are called. The last word says what a thing is: a `secret_type` and a `token_address` are none.

/** Nothing else is called so. */
const always =
  /(?:authorization|passw(?:or)?d|passphrase|secret|(?:api|access|private|auth|secret|subscription|functions)-?key|(?:access|api|auth|bearer|private|refresh|security|session)-?token)$/;
/** Harmless things are called so as well. */
const often =
  /(?:^|-)(?:cookies?|credentials?|signature|passwords|secrets)$|tokens?$|(?:^|-)(?:app|application|license|service)-?key$|^(?:x-)?(?:key|sign?|auth|pass|pwd|app-?id)$/;
/** How far a list has been read. */
const places = /(?:^|-)(?:page|next|prev|previous|sync|continuation|cursor|resume)-?token$/;
/** Anywhere in a name: enough where nobody knows the value; where one does, it has to look like a secret, too. */
const mentions =
  /(?:^|-)(?:authorization|cookie|secret|token|credentials?|signature|session|passphrase|pwd)(?:-|$)|passw(?:or)?d(?!less)|sess(?:ion)?-?id(?:-|$)|(?:api|access|private|auth|secret)-?key/;
const about =
  /-(?:type|types|version|format|method|algorithm|mode|policy|address|addresses|names?|ur[il]|endpoint|expires|affinity|symbol|decimals)$/;
/** Any other key of somebody's may open something: `X-Master-Key`, `encryption_key`. */
const keys = /-key$/;
const openNothing =
  /(?:^|-)(?:idempotency|dedup(?:lication)?|public|primary|foreign|partition|sort|range|row|start|evaluated|page|pagination|next|last|cursor|cache|surrogate|unique|parent|space|component|collection|item|object|document|record|field|property|attribute|tag|label|file|image|group|order|search|map|index|message|project|issue|or|feature|flag|translation|rate-limit)-key$/;

const longestName = 256;

/** `tavilyApiKey`, `X-Api-Key` and `api_key2` are words alike. */
export function wordsOf(name: string): string {
  return name
    .slice(-longestName)
    .replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, "-")
    .toLowerCase()
    .replaceAll(/[^a-z\d]+/g, "-")
    .replace(/[-\d]+$/, "");
}

const isCalledSo = (words: string): boolean => always.test(words) || (often.test(words) && !places.test(words));

const isMentioned = (words: string): boolean => mentions.test(words) && !about.test(words) && !places.test(words);

const mayBeCalledSo = (words: string): boolean =>
  isCalledSo(words) || isMentioned(words) || (keys.test(words) && !openNothing.test(words));

/** Fields, headers and the like that may hold a secret by their names. A `session` alone is what its fields say. */
export function isSecretName(name: string): boolean {
  const words = wordsOf(name);
  return words !== "session" && mayBeCalledSo(words);
}

/** Says nothing, whatever it is called: `hide_secret=true`, `X-Atlassian-Token: no-check`, `api_key=DEMO_KEY`. */
const plain = /^(?:|true|false|yes|no|on|off|null|none|[01]|demo(?:[-_]key)?|no-?check|fetch|required)$/i;
/** As many tokens as a model may write (-1: any number) are no secret, as a password of digits is one. */
const count = /^(?:-1|\d{1,7})$/;
const counted =
  /tokens$|(?:^|-)token-ids?$|(?:^|-)(?:max|min|count|limit|length|size|shares|per|age|ttl|timeout|days|hours|minutes|seconds|ms)(?:-|$)/;
/** An address of a chain is known to everybody. */
const chainAddress = /^0x[\da-f]{40}$/i;
const random = /^(?=.*\d)(?=.*[A-Za-z])\S{16,}$/;
const isRandom = (text: string): boolean => random.test(text) && !chainAddress.test(text);
/** Cookies of what somebody likes to see. */
const preference =
  /^(?:lang(?:uage)?|locale|theme|currency|region|country|time-?zone|tz|wp-settings-time-\d+)=[\w./+-]{0,20}$/i;
const bearer = /^bearer +(?=\S*\d)\S{12,}$/i;
const basic = /^basic +([\w+/=-]+)$/i;

/** Name and password of HTTP's own scheme, and not "Basic information". */
function isBasic(value: string): boolean {
  const [, encoded = ""] = basic.exec(value) ?? [];
  const pair = Buffer.from(encoded, "base64").toString("latin1");
  return pair.includes(":", 1) && /^[\x20-\x7e]+$/.test(pair);
}

/** Is a fixed value a secret, by its form or by what it is called? A placeholder (`{page}`) is none. */
export function isSecretValue(name: string, value: string): boolean {
  return isSecretOf(wordsOf(name), value);
}

function isSecretOf(words: string, value: string): boolean {
  if (plain.test(value)) return false;
  if (value.split(/[\s=;,:"'{}]+/).some(isToken) || bearer.test(value) || isBasic(value)) return true;
  if (/\{[\w.-]+\}/.test(value)) return false;
  if (always.test(words)) return true;
  if (!(isCalledSo(words) || isMentioned(words))) return false;
  // Of a cookie, what it holds and not what it is called.
  return value.split(/[\s;,]+/).some((part) => isRandom(part.replace(/^[\w.-]+=(?=[^=])/, "")));
}

/**
 * Where it is better to ask for a value once too often than to keep it: short ones, and those that stand for one, too.
 * What is not known to be harmless is taken for a secret if it may be called so.
 */
export function mayBeSecret(name: string, value: string): boolean {
  const words = wordsOf(name);
  return !isHarmless(words, value) && (mayBeCalledSo(words) || isSecretOf(words, value));
}

function isHarmless(words: string, value: string): boolean {
  if (value === "") return false;
  if (plain.test(value)) return true;
  if (always.test(words)) return false;
  if (/(?:^|-)cookies?$/.test(words)) return value.split(/; */).every((part) => preference.test(part));
  return chainAddress.test(value) || (count.test(value) && counted.test(words));
}

/** Has an address, or a path with a query, a parameter whose value is a secret, as `isSecret` judges? */
export function hasSecretInQuery(address: string, isSecret = isSecretValue): boolean {
  const at = address.indexOf("?");
  const query = at < 0 ? [] : new URLSearchParams(address.slice(at + 1));
  return [...query].some(([name, value]) => isSecret(name, value));
}

/** What is shorter says which of a few: `auth=sso`. */
const shortest = 4;
/** Called so are ids and places as well; with a letter behind a digit it is no word with a number, as `orders2026` is. */
function isUnworded(value: string): boolean {
  const digit = value.search(/\d/);
  return digit >= 0 && /[A-Za-z]/.test(value.slice(digit)) && /^\S{8,}$/.test(value) && !chainAddress.test(value);
}

/**
 * Does a parameter open its address to whoever knows it? For people to look at: what is called a token is one, however short.
 * Nothing is refused for it, which would ask for more.
 */
export function isOpeningParameter(name: string, value: string): boolean {
  const words = wordsOf(name);
  if (isSecretOf(words, value)) return true;
  if (!isCalledSo(words) || plain.test(value) || counted.test(words) || /\{[\w.-]+\}/.test(value)) return false;
  return /(?:^|-)(?:token|sign?|signature|auth|pass|pwd)$/.test(words)
    ? value.length >= shortest && !chainAddress.test(value)
    : isUnworded(value);
}

/** What stands in the place of a credential's name, as the end of a sentence about the field. */
export const notAName =
  "is the name under which a secret is stored, and this looks like a secret itself; store it with PUT /v1/credentials/{name} under a name of your own, and write that name here";
