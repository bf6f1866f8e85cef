/** Proof Key for Code Exchange (RFC 7636), method S256: who redeems the code is who asked for it. */
import { createHash, randomBytes } from "node:crypto";

export function newVerifier(): string {
  return randomBytes(32).toString("base64url");
}

export function challengeOf(verifier: string): string {
  return createHash("sha256").update(verifier, "ascii").digest("base64url");
}
