/** A POST of whatever text, by nobody in particular. */
import type { Json } from "./gateway-client.ts";

export async function rawSend(
  url: string,
  body: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly json: Json }> {
  const answer = await fetch(url, {
    method: "POST",
    body,
    headers: { "content-type": "application/json", ...headers },
  });
  return { status: answer.status, json: JSON.parse(await answer.text()) };
}
