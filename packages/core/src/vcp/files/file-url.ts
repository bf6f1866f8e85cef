/**
 * `file://` addresses in arguments, and whether a directory that somebody has named holds them (VCP-16). Pure: no
 * path here is ever opened by the gateway.
 */
import { isJsonObject, type JsonValue } from "../../json.ts";

/** Do arguments name a file anywhere? */
export function mentionsFile(value: JsonValue): boolean {
  if (typeof value === "string") return /(?<![\w+.-])file:\/\//i.test(value);
  if (Array.isArray(value)) return value.some(mentionsFile);
  return isJsonObject(value) && Object.values(value).some(mentionsFile);
}

/** `undefined`: it names no file of a machine; addresses of shares are another machine's. */
export function pathOfFileUrl(url: string): string | undefined {
  const [, host = "", path] = /^file:\/\/([^/]*)(\/[^?#]*)/i.exec(url) ?? [];
  if (path === undefined || (host !== "" && host !== "localhost")) return undefined;
  let decoded: string;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    return undefined;
  }
  if (decoded.includes("\0")) return undefined;
  const slashed = decoded.replaceAll("\\", "/");
  // Windows: `/C:/…`.
  const own = /^\/[A-Za-z]:\//.test(slashed) ? slashed.slice(1) : slashed;
  const names = own.split("/");
  return names.some((name) => name === ".." || name === ".") ? undefined : own.replaceAll(/\/{2,}/g, "/");
}

/** Does one of the directories hold the file? A link that leads out of them is for the node itself to see. */
export function isWithin(url: unknown, directories: readonly string[]): boolean {
  const path = typeof url === "string" ? pathOfFileUrl(url) : undefined;
  if (path === undefined) return false;
  return directories.some((directory) => {
    const root = directory.replaceAll("\\", "/").replace(/\/+$/, "");
    const [whole, within] = /^[A-Za-z]:/.test(root) ? [path.toLowerCase(), root.toLowerCase()] : [path, root];
    return whole.startsWith(`${within}/`);
  });
}
