/**
 * JSON Web Encryption as far as sealed values need it (RFC 7516): `dir`, A256GCM, flattened, by `node:crypto`
 * at once. WebCrypto would send each value to a thread and back, which costs a call more than the rest of it.
 */
import { createCipheriv, createDecipheriv, type KeyObject } from "node:crypto";
import { isJsonObject, parseJson } from "../json.ts";
import { randomHex } from "../random-hex.ts";

const cipher = "aes-256-gcm";
const ivBytes = 12;
const tagBytes = 16;

/** The protected header of values sealed with one key, encoded; made once for each key. */
export function encodeHeader(keyId: string): string {
  return Buffer.from(JSON.stringify({ alg: "dir", enc: "A256GCM", kid: keyId }), "utf8").toString("base64url");
}

export interface Sealing {
  readonly key: KeyObject;
  /** By `encodeHeader`. */
  readonly header: string;
  readonly aad: Uint8Array;
}

/** JSON text of the flattened form, without the additional authenticated data. */
export function encryptJwe(plaintext: string, { key, header, aad }: Sealing): string {
  const iv = Buffer.from(randomHex(ivBytes), "hex");
  const encrypting = createCipheriv(cipher, key, iv, { authTagLength: tagBytes });
  encrypting.setAAD(authenticated(header, aad));
  const ciphertext = encrypting.update(plaintext, "utf8", "base64url") + encrypting.final("base64url");
  const tag = encrypting.getAuthTag();
  return `{"protected":"${header}","iv":"${iv.toString("base64url")}","ciphertext":"${ciphertext}","tag":"${tag.toString("base64url")}"}`;
}

/** @throws Error where it is none, or was sealed with another key or for another place */
export function decryptJwe(sealed: string, { key, aad }: Omit<Sealing, "header">): string {
  const jwe = parseJson(sealed);
  if (!isJsonObject(jwe)) throw new Error("It is no JWE.");
  const [header, iv, ciphertext, tag] = [jwe["protected"], jwe["iv"], jwe["ciphertext"], jwe["tag"]];
  if (typeof header !== "string" || typeof iv !== "string" || typeof ciphertext !== "string" || typeof tag !== "string")
    throw new Error("It is no JWE of the flattened form.");
  requireAlgorithms(header);
  const decrypting = createDecipheriv(cipher, key, decode(iv, ivBytes), { authTagLength: tagBytes });
  decrypting.setAAD(authenticated(header, aad));
  decrypting.setAuthTag(decode(tag, tagBytes));
  return Buffer.concat([decrypting.update(ciphertext, "base64url"), decrypting.final()]).toString("utf8");
}

/** The last header that was read and is ours: a process opens values of few keys. */
let ours = "";

/** Nothing else is ever written; whoever could choose would choose the weaker one. */
function requireAlgorithms(header: string): void {
  if (header === ours) return;
  const fields = parseJson(Buffer.from(header, "base64url").toString("utf8"));
  const isOurs = isJsonObject(fields) && fields["alg"] === "dir" && fields["enc"] === "A256GCM";
  if (!isOurs || fields["crit"] !== undefined || fields["zip"] !== undefined)
    throw new Error("It is sealed in another way.");
  ours = header;
}

function decode(text: string, bytes: number): Buffer {
  const decoded = Buffer.from(text, "base64url");
  if (decoded.length !== bytes) throw new Error("A part of it has the wrong length.");
  return decoded;
}

function authenticated(header: string, aad: Uint8Array): Buffer {
  return Buffer.from(`${header}.${Buffer.from(aad).toString("base64url")}`, "latin1");
}
