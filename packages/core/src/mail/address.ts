/**
 * Mail addresses (SVCERR-1 "bad address, header newline"). One strict form, `local@domain` without quotes,
 * comments and display names: whatever a parser of headers could take for something else is refused here.
 */
import { domainToASCII } from "node:url";
import type { Mailbox } from "../ports/mail-transport.ts";

/** The address as it is sent, its domain in ASCII; undefined where it is none. */
export function parseAddress(text: string): string | undefined {
  const at = text.lastIndexOf("@");
  const local = text.slice(0, at);
  if (at < 1 || local.length > 64 || !/^[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*$/.test(local))
    return undefined;
  const given = text.slice(at + 1);
  // Before it is converted, which would clean what must be refused.
  if (given.length > 255 || !/^[\p{L}\p{M}\p{N}.-]+$/u.test(given)) return undefined;
  const domain = domainToASCII(given);
  const isDomain =
    domain.length <= 253 && /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$/.test(domain);
  const address = `${local}@${domain}`;
  return isDomain && address.length <= 254 ? address : undefined;
}

/** Text that may stand in a header: no line break and no other control character. */
export function isHeaderText(text: string): boolean {
  return !/[\p{Cc}\u2028\u2029]/u.test(text) && text.isWellFormed();
}

export function domainOf(address: string): string {
  return address.slice(address.lastIndexOf("@") + 1);
}

/** What lets recipients be: `ann@example.com`, or `@example.com` for everybody there. */
export function isAllowedBy(patterns: readonly string[], address: string): boolean {
  const known = address.toLowerCase();
  return patterns.some((pattern) => {
    const allowed = pattern.toLowerCase();
    return allowed.startsWith("@") ? `@${domainOf(known)}` === allowed : known === allowed;
  });
}

/** Each address once, in the order given. */
export function withoutDuplicates(boxes: readonly Mailbox[], seen = new Set<string>()): readonly Mailbox[] {
  return boxes.filter(({ address }) => {
    if (seen.has(address)) return false;
    seen.add(address);
    return true;
  });
}
