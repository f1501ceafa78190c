"""What Kaiwo tells other programs and people about itself: alerts."""
