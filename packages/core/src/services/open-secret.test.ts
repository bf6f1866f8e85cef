import { expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { openSecret } from "./open-secret.ts";

test.each([[[]], [[["PASSWORD", ""]]], [[["PASSWORD", " \t"]]]] as const)(
  `A secret that is not there, or blanks alone, opens nothing: %j ${verifies("BLIND-5")}`,
  async (values) => {
    const opened = openSecret(
      { credential: "PASSWORD" },
      { resolve: () => Promise.resolve(new Map<string, string>(values)) },
      callContext(),
    );
    const error: unknown = await opened.catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "credential_missing", details: { param: "PASSWORD" } });
    expect(deliveryOf(error)).toBe("not_sent");
  },
);
