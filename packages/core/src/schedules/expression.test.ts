import fc from "fast-check";
import { describe, expect, test } from "vitest";
import stored from "../../../../test/fixtures/schedule-expressions.json" with { type: "json" };
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { parseExpression } from "./expression.ts";
import { fromUnixCron } from "./from-unix.ts";
import { nextFirings, type Timeline, type Timing } from "./timeline.ts";

interface Corpus {
  readonly expressions: readonly {
    readonly id: string;
    readonly expr: string;
    readonly verdict: "valid" | "invalid" | "unspecified";
    readonly nextUtcAfter?: string;
    readonly next3?: readonly string[];
  }[];
  readonly conversionsFrom5Field: readonly {
    readonly cron5: string;
    readonly aws?: readonly string[];
    readonly error?: string;
  }[];
}
const corpus: Corpus = stored as Corpus;

const inUtc = (timing: Timing): Timeline => ({ timing, timeZone: "UTC", startAt: null, endAt: null });
const cron = (...expressions: string[]): Timeline => inUtc({ kind: "cron", expressions });

/** What it says where it refuses; undefined: it does not. @throws whatever is no refusal */
function refusalOf(read: () => unknown): string | undefined {
  try {
    read();
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError && error.details.param !== undefined) return error.message;
    throw error;
  }
}

describe(`expressions of EventBridge ${verifies("VCP-18")}`, () => {
  const of = (...verdicts: readonly string[]) =>
    corpus.expressions.filter(({ verdict }) => verdicts.includes(verdict)).map((each) => [each.id, each] as const);

  test.for(of("valid"))("%s is valid", ([, { expr }]) => {
    expect(() => parseExpression(expr, "expression")).not.toThrow();
  });

  test.for(of("valid").filter(([, { next3 }]) => next3 !== undefined))("%s comes next when it should", ([, each]) => {
    const next = nextFirings(cron(each.expr), Date.parse(each.nextUtcAfter ?? ""), 3);
    expect(next).toEqual(each.next3?.map((time) => Date.parse(time)));
  });

  test.for(of("invalid"))("%s is refused", ([, { expr }]) => {
    expect(refusalOf(() => parseExpression(expr, "expression"))).toMatch(/^'expression' is '.*'?: ./);
  });

  test.for(of("unspecified"))("%s is refused, as not specified", ([, { expr }]) => {
    expect(refusalOf(() => parseExpression(expr, "expression"))).toMatch(/not specified/);
  });

  test.for([
    ["at(2026-13-01T00:00:00)", /exists/],
    ["rate(1 minutes)", /write 'rate\(1 minute\)'/],
    ["rate(5 minute)", /write 'rate\(5 minutes\)'/],
    ["rate(40000 days)", /at most 36500 days/],
    ["CRON(0 12 * * ? *)", /write 'cron\(…\)'/],
    ["cron(0 12 * jan ? *)", /write 'JAN'/],
    ["cron(0 12 5,L * ? *)", /'L' stands alone/],
    ["cron(0 12 L-3 * ? *)", /not specified/],
    ["cron(0 12 32W * ? *)", /day-of-month '32' is not from 1 to 31/],
    ["cron(0 12 ? * MON#2,FRI *)", /one '#' alone/],
    ["cron(0 12 ? * 6L,2 *)", /not specified/],
    ["cron(0 12 ? * FRI-MON *)", /ends before it begins/],
    ["cron(0 12 ? * FUNDAY *)", /not from 1 to 7 or SUN to SAT/],
    ["cron(0/90 12 * * ? *)", /step that is not from 1 to 59/],
    ["cron(0  12 * * ? *)", /one space/],
    ["cron(1-a 12 * * ? *)", /'a' is not from 0 to 59/],
    [`cron(${"1,".repeat(200)}1 12 * * ? *)`, /write 'cron/],
  ] as const)("'%s' is refused with what would be right", ([text, why]) => {
    expect(() => parseExpression(text, "cron")).toThrow(why);
  });

  test("whatever stands there is read or refused, never a fault", () => {
    const part = fc.stringMatching(/^[0-9A-Z*?LW#,/-]{1,8}$/);
    const text = fc.oneof(
      fc.string(),
      fc.array(part, { minLength: 5, maxLength: 7 }).map((parts) => `cron(${parts.join(" ")})`),
      fc.stringMatching(/^(at|rate)\([0-9T:. a-z-]{0,24}\)$/),
    );
    fc.assert(
      fc.property(text, (given) => {
        for (const read of [() => parseExpression(given, "cron"), () => fromUnixCron(given, "cron")]) {
          expect(refusalOf(read)).not.toBe("");
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

describe(`five fields ${verifies("VCP-18")}`, () => {
  const [translated, refused] = [
    corpus.conversionsFrom5Field.filter(({ aws }) => aws !== undefined),
    corpus.conversionsFrom5Field.filter(({ aws }) => aws === undefined),
  ] as const;

  test.for(translated.map((each) => [each.cron5, each.aws] as const))("'%s' is %s", ([text, aws]) => {
    expect(fromUnixCron(text, "cron")).toEqual(aws);
  });

  test.for(refused.map((each) => [each.cron5] as const))("'%s' is refused", ([text]) => {
    expect(refusalOf(() => fromUnixCron(text, "cron"))).toMatch(/^'cron' is /);
  });

  test.for([
    ["0 9 * * 1", "cron(0 9 ? * MON *)"],
    ["0 9 * * 0", "cron(0 9 ? * SUN *)"],
    ["0 9 * * 7", "cron(0 9 ? * 1 *)"],
    ["*/15 8-18 * * 1-5", "cron(0/15 8-18 ? * MON-FRI *)"],
    ["0 0 1 * *", "cron(0 0 1 * ? *)"],
    ["0 0 * * *", "cron(0 0 ? * * *)"],
  ] as const)("'%s' fires as '%s' does", ([unix, eventBridge]) => {
    const after = Date.parse("2026-11-27T08:00:00Z");
    const own = nextFirings(cron(...fromUnixCron(unix, "cron")), after, 20);
    expect(own).toEqual(nextFirings(cron(eventBridge), after, 20));
  });

  test.for([
    ["61 9 * * *", /minute '61' is not from 0 to 59/],
    ["0 0 */2 * 1", /fit both/],
    ["5/15 * * * *", /write '5-59\/15'/],
    ["*,5 * * * *", /stands alone/],
    ["0 0 5-1 * *", /ends before it begins/],
    ["@reboot", /@daily/],
    ["0 12 * * ? *", /written 'cron\(…\)'/],
    ["*/0 * * * *", /step that is not from 1 to 59/],
  ] as const)("'%s' is refused with what would be right", ([text, why]) => {
    expect(() => fromUnixCron(text, "cron")).toThrow(why);
  });

  test("both days restricted: the 13th, and every Friday, once where they meet", () => {
    const both = fromUnixCron("0 0 13 * 5", "cron");
    const next = nextFirings(cron(...both), Date.parse("2026-10-31T00:00:00Z"), 5);
    // Friday, November 13 is both.
    expect(next.map((at) => new Date(at).toISOString().slice(0, 10))).toEqual([
      "2026-11-06",
      "2026-11-13",
      "2026-11-20",
      "2026-11-27",
      "2026-12-04",
    ]);
  });
});
