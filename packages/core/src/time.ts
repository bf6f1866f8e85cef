/** Times on the wire of our own routes: RFC 3339 in UTC with milliseconds. OpenAI's routes keep unix seconds. */

export function toRfc3339(ms: number): string {
  return new Date(ms).toISOString();
}
