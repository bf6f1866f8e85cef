/** Payloads of an event stream as our streams write them: one `data:` line each, JSON or `[DONE]`. */
export function sseEvents(text: string): unknown[] {
  return text
    .split("\n\n")
    .filter((frame) => frame.startsWith("data: "))
    .map((frame) => {
      const data = frame.slice("data: ".length);
      return data === "[DONE]" ? data : (JSON.parse(data) as unknown);
    });
}
