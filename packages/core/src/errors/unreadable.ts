/** Rows that this release cannot read, as after going back to it: whoever deletes one need not read it. */
import { GatewayError } from "./gateway-error.ts";

/** Undefined: there is a row, and it cannot be read. */
export async function ifReadable<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof GatewayError && error.code === "internal_error") return undefined;
    throw error;
  }
}
