/**
 * What an operator is woken for, and one page to look at then. Stages that come and go have neither, since
 * each alarm costs. docs/operate.md says what to do about them.
 */
import { api, chat } from "./api.ts";
import { codeBox } from "./code-box.ts";
import { logGroupOf } from "./function.ts";
import { rest } from "./gateways.ts";
import { seconds } from "./limits.ts";
import { pluginBox } from "./plugin-box.ts";
import { long, short } from "./queue.ts";
import { ws } from "./realtime.ts";
import { alarmEmail, isPermanent } from "./settings.ts";
import { lostTicks, tick } from "./tick.ts";
import { workerLong, workerShort } from "./worker.ts";

type Text = $util.Input<string>;

interface Metric {
  readonly namespace: string;
  readonly name: string;
  readonly dimensions: Readonly<Record<string, Text>>;
  /** `Sum`, `Maximum`, or a percentile like `p99`. */
  readonly statistic: string;
}

interface AlarmSpec extends Metric {
  readonly description: string;
  /** Of one period; the alarm goes off above it. */
  readonly above: number;
  readonly periodSeconds?: number;
  readonly periods?: number;
}

const functions = {
  Chat: { name: chat.name, seconds: seconds.chat },
  Api: { name: api.name, seconds: seconds.api },
  Ws: { name: ws.name, seconds: seconds.realtime },
  WorkerShort: { name: workerShort.name, seconds: seconds.workerShort },
  WorkerLong: { name: workerLong.name, seconds: seconds.workerLong },
  Tick: { name: tick.name, seconds: seconds.tick },
  PluginBox: { name: pluginBox.name, seconds: seconds.pluginBox },
  CodeBox: { name: codeBox.name, seconds: seconds.codeBox },
};

const queues = { CallsShort: short.queue, CallsLong: long.queue };
const deadLetters = {
  CallsShortDeadLetters: short.deadLetters,
  CallsLongDeadLetters: long.deadLetters,
  TickDeadLetters: lostTicks,
};

function ofFunction(name: Text, metric: string, statistic: string): Metric {
  return { namespace: "AWS/Lambda", name: metric, dimensions: { FunctionName: name }, statistic };
}

function ofQueue(queue: sst.aws.Queue, metric: string): Metric {
  const dimensions = { QueueName: queue.nodes.queue.name };
  return { namespace: "AWS/SQS", name: metric, dimensions, statistic: "Maximum" };
}

function ofRest(metric: string, statistic: string): Metric {
  const dimensions = { ApiName: rest.nodes.api.name, Stage: $app.stage };
  return { namespace: "AWS/ApiGateway", name: metric, dimensions, statistic };
}

/** API Gateway's own count of a WebSocket API has refusals in it: clients with an old key would wake somebody. */
function countRealtimeFaults(): Metric {
  const metric = { namespace: `Toolyard/${$app.stage}`, name: "RealtimeFaults" };
  new aws.cloudwatch.LogMetricFilter(metric.name, {
    logGroupName: logGroupOf("Ws").name,
    // What functions/realtime/lambda.ts writes of them.
    pattern: '{ $.level = "error" && $.msg = "a WebSocket event was refused" }',
    metricTransformation: { ...metric, value: "1" },
  });
  return { ...metric, dimensions: {}, statistic: "Sum" };
}

function createAlarms(): void {
  const topic = new aws.sns.Topic("Alarms", {});
  if (alarmEmail !== undefined) {
    new aws.sns.TopicSubscription("AlarmsByMail", { topic: topic.arn, protocol: "email", endpoint: alarmEmail });
  }

  const create = (name: string, spec: AlarmSpec, more: Partial<aws.cloudwatch.MetricAlarmArgs> = {}): void => {
    const isPercentile = spec.statistic.startsWith("p");
    new aws.cloudwatch.MetricAlarm(`${name}Alarm`, {
      name: `${$app.name}-${$app.stage}-${name}`,
      alarmDescription: spec.description,
      namespace: spec.namespace,
      metricName: spec.name,
      dimensions: spec.dimensions,
      ...(isPercentile ? { extendedStatistic: spec.statistic } : { statistic: spec.statistic }),
      period: spec.periodSeconds ?? 300,
      evaluationPeriods: spec.periods ?? 1,
      threshold: spec.above,
      comparisonOperator: "GreaterThanThreshold",
      // No traffic is no fault.
      treatMissingData: "notBreaching",
      alarmActions: [topic.arn],
      okActions: [topic.arn],
      ...more,
    });
  };

  for (const [name, queue] of Object.entries(deadLetters)) {
    create(`${name}Depth`, {
      ...ofQueue(queue, "ApproximateNumberOfMessagesVisible"),
      description: "Messages were given up: a fault of ours, since failed calls end as records",
      above: 0,
      periodSeconds: 60,
    });
  }
  create("CallsShortAge", {
    ...ofQueue(short.queue, "ApproximateAgeOfOldestMessage"),
    description: "Queued calls wait for five minutes more than a run may take",
    // What is in hand counts as well, and a flow may be for as long as the function runs.
    above: seconds.workerShort + 300,
  });
  create("CallsLongAge", {
    ...ofQueue(long.queue, "ApproximateAgeOfOldestMessage"),
    description: "Long calls wait for more than half an hour",
    above: 1_800,
  });
  for (const [name, fn] of Object.entries(functions)) {
    create(`${name}Errors`, {
      ...ofFunction(fn.name, "Errors", "Sum"),
      description: `${name} failed: it could not start, ran out of time or memory, or threw`,
      above: 0,
      periods: 2,
    });
    create(`${name}Throttles`, {
      ...ofFunction(fn.name, "Throttles", "Sum"),
      description: `${name} was refused: the account's concurrency is used up`,
      above: 0,
    });
    create(`${name}Duration`, {
      ...ofFunction(fn.name, "Duration", "p99"),
      description: `One run of ${name} in a hundred takes more than nine tenths of its time`,
      above: fn.seconds * 900,
      periods: 3,
    });
  }
  create("Http5xx", {
    ...ofRest("5XXError", "Sum"),
    description: "More than five answers in five minutes were faults of ours, or of back ends of tools and models",
    above: 5,
  });
  create("RealtimeFaults", {
    ...countRealtimeFaults(),
    description: "More than five connections or frames of WebSockets in five minutes met faults of ours",
    above: 5,
  });
  create("SchedulerDropped", {
    namespace: "AWS/Scheduler",
    name: "InvocationDroppedCount",
    dimensions: { ScheduleGroup: "default" },
    statistic: "Sum",
    description: "The scheduler gave up starting the tick",
    above: 0,
  });
  create(
    "TickMissing",
    {
      ...ofFunction(tick.name, "Invocations", "Sum"),
      description: "The tick has not run for five minutes: schedules, retries and webhooks stand still",
      above: 0,
    },
    { comparisonOperator: "LessThanThreshold", threshold: 1, treatMissingData: "breaching" },
  );
}

type WidgetMetric = readonly [namespace: string, name: string, ...rest: readonly unknown[]];

function createDashboard(): void {
  const metrics = (list: readonly (readonly [string, Metric])[]): $util.Output<WidgetMetric[]> =>
    $resolve(list.map(([, metric]) => $resolve(metric.dimensions))).apply((dimensions) =>
      list.map(([label, metric], at): WidgetMetric => {
        const where = Object.entries(dimensions[at] ?? {}).flat();
        return [metric.namespace, metric.name, ...where, { label, stat: metric.statistic }];
      }),
    );
  const perFunction = (metric: string, statistic: string): $util.Output<WidgetMetric[]> =>
    metrics(Object.entries(functions).map(([name, fn]) => [name, ofFunction(fn.name, metric, statistic)]));
  const perQueue = (all: Readonly<Record<string, sst.aws.Queue>>, metric: string): $util.Output<WidgetMetric[]> =>
    metrics(Object.entries(all).map(([name, queue]) => [name, ofQueue(queue, metric)]));

  const charts: readonly (readonly [title: string, metrics: $util.Output<WidgetMetric[]>])[] = [
    [
      "Requests",
      metrics([
        ["all", ofRest("Count", "Sum")],
        ["4XX", ofRest("4XXError", "Sum")],
        ["5XX", ofRest("5XXError", "Sum")],
      ]),
    ],
    [
      "Time to the last byte, ms",
      metrics([
        ["p50", ofRest("Latency", "p50")],
        ["p99", ofRest("Latency", "p99")],
      ]),
    ],
    ["Errors", perFunction("Errors", "Sum")],
    ["Throttles", perFunction("Throttles", "Sum")],
    ["Duration p99, ms", perFunction("Duration", "p99")],
    ["Concurrency", perFunction("ConcurrentExecutions", "Maximum")],
    ["Queued", perQueue(queues, "ApproximateNumberOfMessagesVisible")],
    ["Oldest message, s", perQueue(queues, "ApproximateAgeOfOldestMessage")],
    ["Dead letters", perQueue(deadLetters, "ApproximateNumberOfMessagesVisible")],
  ];
  const { region } = aws.getRegionOutput();
  new aws.cloudwatch.Dashboard("Dashboard", {
    dashboardName: `${$app.name}-${$app.stage}`,
    dashboardBody: $jsonStringify({
      widgets: charts.map(([title, lines], at) => ({
        type: "metric",
        x: (at % 3) * 8,
        y: Math.floor(at / 3) * 6,
        width: 8,
        height: 6,
        properties: { title, region, metrics: lines, view: "timeSeries", period: 300 },
      })),
    }),
  });
}

if (isPermanent) {
  createAlarms();
  createDashboard();
}
