/**
 * What a tool is called before a model: its own name where every back end takes that, else a legal one that is
 * made of it.
 */
import { createHash } from "node:crypto";

/** Gemini and Kimi refuse the whole request for a name that begins with anything else. */
const legalName = /^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/;
const hashLength = 12;

/** A name that every back end takes; equal names have equal aliases, different ones different ones. */
export function aliasOf(name: string): string {
  if (legalName.test(name)) return name;
  const hash = createHash("sha256").update(name).digest("hex").slice(0, hashLength);
  const plain = name.replaceAll(/[^a-zA-Z0-9_-]+/g, "_");
  const readable = (/^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`).slice(0, 64 - hashLength - 1);
  return `${readable}_${hash}`;
}

/** May it be the alias of another name? Few names say yes. */
export function looksLikeAlias(name: string): boolean {
  return madeAlias.test(name);
}

const madeAlias = new RegExp(`_[0-9a-f]{${hashLength}}$`);
