import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { redactPieces } from "./redact-pieces.ts";
import { Redactor } from "./redactor.ts";

const secret = "Bearer sk-model-secret/1";

async function* inPieces(text: string, cuts: readonly number[], error?: Error): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text);
  let from = 0;
  for (const cut of [...cuts, bytes.length].toSorted((a, b) => a - b)) {
    if (cut > from) yield bytes.subarray(from, cut);
    from = Math.max(from, cut);
  }
  if (error !== undefined) throw error;
}

async function readAll(pieces: AsyncIterable<Uint8Array>, isEvents = false): Promise<string[]> {
  const redactor = new Redactor();
  redactor.add(secret);
  const read: string[] = [];
  try {
    for await (const piece of redactPieces(pieces, { redactor, isEvents }))
      read.push(Buffer.from(piece).toString("utf8"));
  } catch (thrown) {
    read.push(String(thrown));
  }
  return read;
}

describe(`bytes that pass ${verifies("BLIND-6")}`, () => {
  test("have no secret, wherever it was cut and however it is written", async () => {
    const forms = [
      secret,
      secret.replace("/", "\\/"),
      encodeURIComponent(secret),
      Buffer.from(secret).toString("base64"),
    ];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...forms),
        fc.array(fc.nat(900)),
        fc.stringMatching(/^[a-zé]{0,400}$/),
        async (form, cuts, around) => {
          const read = (await readAll(inPieces(`${around} ${form} ${around}`, cuts))).join("");
          expect(read).toBe(`${around} [redacted] ${around}`);
        },
      ),
    );
  });

  test("wait for no other event once one is whole", async () => {
    const events = ["data: 1\n\n", "data: 2\r\n\r\n"];
    expect(await readAll(inPieces(events.join(""), [9]), true)).toEqual(events);
  });

  test("that break off end before what may be a secret", async () => {
    expect(await readAll(inPieces('{"data":[1,2', [], new Error("lost")))).toEqual(['{"data":[1,2', "Error: lost"]);
    expect(await readAll(inPieces('{"echo":"Bearer sk-mo', [], new Error("lost")))).toEqual([
      '{"echo":"',
      "Error: lost",
    ]);
  });
});
