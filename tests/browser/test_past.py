"""The page shows the past of work that ended a week ago: timeline, attempts, what it used, and its output."""

from pathlib import Path

import pytest

from tests.api.past_week import served_week
from tests.browser.driver import Page
from tests.browser.product import run_kaiwo

pytestmark = pytest.mark.browser


def test_work_that_was_evicted_twice_is_told_a_week_later(browser: Page, tmp_path: Path) -> None:
    with served_week(tmp_path):
        browser.open(run_kaiwo(tmp_path, "login").strip() + "#work=default/train", height=1500)
        browser.see("#timeline-title")
        browser.see(".timeline .submitted", "Submitted to queue default by ada, asking for 8 GPUs")
        browser.see(".timeline .evicted", "for default/urgent of bob, queue default")
        browser.see(".timeline .evicted", "for default/rush of carol, queue default")
        browser.see(".timeline .waited", "it needs 8 GPUs free on one node")
        browser.see(".timeline .waited", "for 30 min")
        assert browser.count(".timeline .started") == 3
        browser.see(".timeline .ended", "exit code 3")
        browser.see(".attempts li", "Attempt 2: stopped by the scheduler (preempt for default/rush of carol")
        browser.see(".attempts .devices", "node-0: gpu-0, gpu-1")
        browser.see(".detail", "GPU-hours (60 %)")
        browser.click(".logs summary")
        browser.see(".log", "giving up")
        browser.choose(".log-choice select", "1")
        browser.see(".log", "attempt 1")
        browser.miss(".log", "giving up")
        assert browser.errors() == []
