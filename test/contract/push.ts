/** What every push promises, whoever holds the connections. */
import type { Push } from "@toolyard/core/ports/push";
import { describe, expect, test } from "vitest";

export interface OpenConnection {
  readonly id: string;
  readonly received: readonly string[];
  close(): Promise<void>;
}

/** @param make a push, and how a client connects to it */
export function describePush(
  name: string,
  make: () => Promise<{ readonly push: Push; readonly connect: () => Promise<OpenConnection> }>,
): void {
  describe(`push: ${name}`, () => {
    test("sends frames to one connection, in order, and to no other", async () => {
      const { push, connect } = await make();
      const [one, other] = [await connect(), await connect()];
      expect(await push.send(one.id, '{"n":1}')).toBe("sent");
      expect(await push.send(one.id, "第二")).toBe("sent");
      // Over a network, a moment later.
      await expect.poll(() => one.received).toEqual(['{"n":1}', "第二"]);
      expect(other.received).toEqual([]);
    });

    test("says that a connection is gone once it was closed, and where there never was one", async () => {
      const { push, connect } = await make();
      const connection = await connect();
      await connection.close();
      expect(await push.send(connection.id, "late")).toBe("gone");
      expect(await push.send("no-such-connection", "x")).toBe("gone");
      expect(connection.received).toEqual([]);
    });
  });
}
