/**
 * Replaces the secret values of one call wherever they appear: in tool output, errors, logs and
 * audit views (BLIND-6), in every form in which back ends tend to echo them (`secret-pattern.ts`).
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { createSecretPatterns, type SecretPattern } from "./secret-pattern.ts";

export const redactedText = "[redacted]";

/** Characters for one of the secret's, as `secret-pattern.ts` knows them: `&amp;#x00002F;`, `%25F0%259F…` for half of one. */
const longestEscape = 16;

export class Redactor {
  /** Longest first: a secret may contain another one. */
  #secrets: readonly { readonly value: string; readonly patterns: readonly SecretPattern[] }[] = [];

  /** Values shorter than this would cut ordinary words out of texts. */
  static readonly minimumLength = 4;

  add(secret: string): void {
    if (secret.length < Redactor.minimumLength || this.#secrets.some(({ value }) => value === secret)) return;
    this.#secrets = [...this.#secrets, { value: secret, patterns: createSecretPatterns(secret) }].sort(
      (a, b) => b.value.length - a.value.length,
    );
  }

  get isEmpty(): boolean {
    return this.#secrets.length === 0;
  }

  /** Characters of a text beyond which no way to write a secret goes. */
  get longestForm(): number {
    return (this.#secrets[0]?.value.length ?? 0) * longestEscape;
  }

  /** A redacted text that broke off, without what may be the beginning of a secret. */
  redactEnd(text: string): string {
    const small = text.toLowerCase();
    const places = this.#secrets.map(({ value }) =>
      small.indexOf(value.slice(0, Redactor.minimumLength).toLowerCase()),
    );
    return text.slice(0, Math.min(text.length, ...places.filter((at) => at >= 0)));
  }

  redact(text: string): string {
    if (this.isEmpty) return text;
    let result = text;
    let small = text.toLowerCase();
    for (const pattern of this.#secrets.flatMap(({ patterns }) => patterns)) {
      if (!pattern.mayBeIn(small)) continue;
      const replaced = pattern.replaceIn(result, redactedText);
      if (replaced === result) continue;
      result = replaced;
      small = result.toLowerCase();
    }
    return result;
  }

  /** Text by text: taken out of JSON, a secret could take a quote with it. */
  redactObject(object: JsonObject): JsonObject {
    return Object.fromEntries(
      Object.entries(object).map(([key, value]) => [this.redact(key), this.#redactValue(value)]),
    );
  }

  /** Bytes that hold a secret as UTF-8 are redacted as text is; others are returned as they came. */
  redactBytes(bytes: Uint8Array): Uint8Array {
    if (this.isEmpty) return bytes;
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
    const redacted = this.redact(text);
    return redacted === text ? bytes : Buffer.from(redacted, "latin1");
  }

  #redactValue(value: JsonValue): JsonValue {
    if (typeof value === "string") return this.redact(value);
    if (Array.isArray(value)) return value.map((item) => this.#redactValue(item));
    return isJsonObject(value) ? this.redactObject(value) : value;
  }
}
