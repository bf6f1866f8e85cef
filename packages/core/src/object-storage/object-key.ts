/**
 * Keys of objects as callers name them, and as the store knows them below the service's prefix. A key is
 * text, but what carries it is a path, which clients and stores like to normalise: whatever could mean
 * another place than it says is refused rather than repaired.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";

/** Why this is no key or prefix of keys; undefined: it is one. */
export function keyProblem(text: string): string | undefined {
  if (/^[/\\]/.test(text)) return "must not begin with a slash; keys are relative to the service's bucket and prefix";
  if (text.split(/[/\\]/).some((part) => part === "." || part === ".."))
    return "must not have '.' or '..' between slashes";
  if (!text.isWellFormed()) return "holds half of a surrogate pair";
  // What XML, in which stores list their keys, cannot hold is left out with the control characters.
  if (/[\p{Cc}\u2028\u2029\ufffe\uffff]/u.test(text)) return "holds a control character";
  return undefined;
}

export interface KeyRules {
  /** Of the service: empty, or ending in a slash. */
  readonly prefix: string;
  /** The vendor's limit for a whole key. */
  readonly keyBytes: number;
}

/**
 * The whole key of an object.
 * @param param the argument that held it, for the error
 * @throws GatewayError `invalid_arguments`, `not_sent`
 */
export function wholeKey(key: string, rules: KeyRules, param = "key"): string {
  if (key === "") throw refused(param, "must not be empty");
  return wholePrefix(key, rules, param);
}

/** The same for the beginning of keys, which may be empty. */
export function wholePrefix(text: string, { prefix, keyBytes }: KeyRules, param = "prefix"): string {
  const problem = keyProblem(text);
  if (problem !== undefined) throw refused(param, problem);
  const whole = prefix + text;
  const bytes = Buffer.byteLength(whole, "utf8");
  if (bytes > keyBytes) {
    throw refused(
      param,
      `has ${bytes} bytes in UTF-8 with the service's prefix; this kind of store takes ${keyBytes} at most`,
    );
  }
  return whole;
}

/** The key as callers know it; undefined for one that does not lie below the prefix. */
export function relativeKey(whole: string, { prefix }: Pick<KeyRules, "prefix">): string | undefined {
  return whole.startsWith(prefix) ? whole.slice(prefix.length) : undefined;
}

function refused(param: string, problem: string): GatewayError {
  return withDelivery(new GatewayError("invalid_arguments", `'${param}' ${problem}.`, { param }), "not_sent");
}
