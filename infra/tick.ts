/** What has to happen from time to time, started every minute. One that was missed is made up for by the next. */
import { gateway } from "./environment.ts";
import { createFunction } from "./function.ts";
import { pushFrames } from "./gateways.ts";
import { wrapTenantKeys } from "./keys.ts";
import { seconds } from "./limits.ts";
import { migrated } from "./migration.ts";
import { createDeadLetters, sendCalls } from "./queue.ts";
import { useBlobs } from "./storage.ts";

export const tick = createFunction("Tick", {
  bundle: "tick",
  description: "Schedules, lost work, expired rows, webhooks; every minute",
  seconds: seconds.tick,
  memoryMb: 512,
  variables: gateway,
  may: [...useBlobs, ...wrapTenantKeys, sendCalls, pushFrames],
  after: [migrated],
});

/** What the scheduler could not hand over. */
export const lostTicks = createDeadLetters("TickDeadLetters");

const { accountId } = aws.getCallerIdentityOutput();

new sst.aws.CronV2("EveryMinute", {
  schedule: "rate(1 minute)",
  function: tick.arn,
  retries: 1,
  dlq: lostTicks.arn,
  transform: {
    role: (args) => {
      // Only our account's schedules may act through this role.
      args.assumeRolePolicy = aws.iam.getPolicyDocumentOutput({
        statements: [
          {
            actions: ["sts:AssumeRole"],
            principals: [{ type: "Service", identifiers: ["scheduler.amazonaws.com"] }],
            conditions: [{ test: "StringEquals", variable: "aws:SourceAccount", values: [accountId] }],
          },
        ],
      }).json;
      return undefined;
    },
    schedule: (args) => {
      args.target = $output(args.target).apply((target) => ({
        ...target,
        retryPolicy: { maximumRetryAttempts: 1, maximumEventAgeInSeconds: 60 },
      }));
      return undefined;
    },
  },
});
