/**
 * Replaces the secret values of one call wherever they appear: in tool output, errors, logs and
 * audit views. Values are found raw and in the encodings in which back ends tend to echo them.
 */

export const redactedText = "[redacted]";

export class Redactor {
  readonly #secrets = new Set<string>();

  /** Values shorter than this would cut ordinary words out of texts. */
  static readonly minimumLength = 4;

  add(secret: string): void {
    if (secret.length < Redactor.minimumLength) return;
    this.#secrets.add(secret);
    this.#secrets.add(encodeURIComponent(secret));
    this.#secrets.add(new URLSearchParams({ v: secret }).toString().slice(2));
    this.#secrets.add(JSON.stringify(secret).slice(1, -1));
    const base64 = Buffer.from(secret, "utf8").toString("base64");
    if (base64.length >= 8) {
      this.#secrets.add(base64);
      this.#secrets.add(base64.replace(/=+$/, ""));
      this.#secrets.add(Buffer.from(secret, "utf8").toString("base64url"));
    }
  }

  get isEmpty(): boolean {
    return this.#secrets.size === 0;
  }

  redact(text: string): string {
    let result = text;
    // Longest first: a secret may contain another one.
    for (const secret of [...this.#secrets].sort((a, b) => b.length - a.length)) {
      if (result.includes(secret)) result = result.split(secret).join(redactedText);
    }
    return result;
  }

  /** Bytes that hold a secret as UTF-8 are redacted as text is; others are returned as they came. */
  redactBytes(bytes: Uint8Array): Uint8Array {
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (const secret of this.#secrets) {
      if (buffer.includes(secret)) return Buffer.from(this.redact(buffer.toString("latin1")), "latin1");
    }
    return bytes;
  }
}
