import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeScheduleRepo } from "./schedules-repo.ts";

describeScheduleRepo("file", twoInstancesOfFile);
describeScheduleRepo("server", twoInstancesOfServer);
