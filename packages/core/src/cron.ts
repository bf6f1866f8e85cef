/**
 * Cron expressions of five fields, or six with seconds first, in a time zone. Where clocks are put forward, a time
 * that does not exist fires as soon as the gap is over; where they are put back, a time that comes twice fires once.
 */
import { Cron } from "croner";
import { GatewayError } from "./errors/gateway-error.ts";

export interface CronZone {
  /** IANA name; absent: UTC. */
  readonly timeZone?: string;
}

/**
 * @param param the field that holds the expression, for the error
 * @throws GatewayError `invalid_definition` naming the field and what is wrong with it
 */
export function checkCron(expression: string, param: string): void {
  try {
    parse(expression, {});
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^CronPattern: /, "") : String(error);
    throw new GatewayError(
      "invalid_definition",
      `'${param}' is '${expression.slice(0, 80)}', which is no cron expression of five fields, or six with seconds first: ${reason}`,
      { param },
    );
  }
}

/**
 * @param after Unix time in milliseconds
 * @returns the first firing later than that, in the same unit; undefined where there is none any more
 */
export function nextFiring(expression: string, after: number, zone: CronZone = {}): number | undefined {
  return parse(expression, zone).nextRun(new Date(after))?.getTime();
}

function parse(expression: string, { timeZone = "UTC" }: CronZone): Cron {
  return new Cron(expression.trim(), { mode: "5-or-6-parts", timezone: timeZone, paused: true });
}
