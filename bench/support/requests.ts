/** The request that is measured: a chat of some 1 KB, Chinese characters included. */
const text = "The quick brown fox 敏捷的棕色狐狸 jumps over the lazy dog. ";

export function chatBody(model: string, { stream = false }: { readonly stream?: boolean } = {}): string {
  const messages = [
    { role: "system", content: "You are a helpful assistant." },
    { role: "user", content: text.repeat(7) },
    { role: "assistant", content: text.repeat(4) },
    { role: "user", content: "And then?" },
  ];
  return JSON.stringify({ model, stream, temperature: 0.7, messages });
}
