import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { toToolReply } from "./reply.ts";

const forModel = (value: JsonObject): string | undefined => toToolReply("Search", { kind: "success", value }).forModel;

describe(`a plugin's result in parts ${verifies("VCP-4")}`, () => {
  test("is told to a model in words: text as it is, what it cannot read by kind and size", () => {
    const url = `data:image/png;base64,${Buffer.alloc(16).toString("base64")}`;
    const content = [
      { type: "text", text: "two" },
      { type: "image_url", image_url: { url } },
      { type: "video_url", video_url: { url: "https://v.example/1" } },
    ];
    expect(forModel({ content })).toBe("two\n[image: image/png, 16 bytes]\n[video: https://v.example/1]");
  });

  test.each<JsonObject>([
    { type: "image", data: "AAAA", mimeType: "image/png" },
    { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } },
    { type: "resource", resource: { uri: "x://1", mimeType: "image/png", blob: "AAAA" } },
    { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
  ])("has its bytes told by kind and size, whoever's form they have: $type", (part) => {
    const { forModel: told, pictures } = toToolReply("Draw", { kind: "success", value: { content: [part] } });
    expect(told).toBe(`[${part["type"] === "resource" ? "resource" : "image"}: image/png, 3 bytes]`);
    expect(pictures).toBe(1);
  });

  test("that is a list of something else is told as what it is", () => {
    const hits = [
      { title: "A", url: "https://a.example" },
      { type: "hit", title: "B" },
    ];
    expect(
      forModel({ content: hits })
        ?.split("\n")
        .map((line) => JSON.parse(line)),
    ).toEqual(hits);
    expect(forModel({ status: "success", data: { content: hits } })).toBe(forModel({ content: hits }));
  });
});
