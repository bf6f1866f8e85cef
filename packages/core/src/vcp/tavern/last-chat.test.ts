import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { lastChatTexts } from "./last-chat.ts";

describe(`the time of the last chat ${verifies("VCP-9")}`, () => {
  const zone = "Asia/Shanghai";
  const now = Date.UTC(2026, 10, 28, 10, 0, 0);

  test.for<[number, string]>([
    [0, "不到1分钟"],
    [59_999, "不到1分钟"],
    [60_000, "1分钟"],
    [3_600_000 + 120_000, "1小时2分钟"],
    [2 * 86_400_000 + 60_000, "2天1分钟"],
    [86_400_000 + 3_600_000 + 60_000, "1天1小时"],
  ])("%i ms ago is %s", async ([ago, expected]) => {
    expect((await lastChatTexts({ at: now - ago, now, zone })).TimeSinceLastChat).toBe(expected);
  });

  test("is one of the tenant's time zone", async () => {
    const { LastChatTime } = await lastChatTexts({ at: now, now, zone });
    expect(LastChatTime).toBe("2026/11/28 18:00:00");
    const none = await lastChatTexts({ at: undefined, now, zone });
    expect(none).toEqual({ LastChatTime: "首次对话", TimeSinceLastChat: "首次对话" });
  });
});
